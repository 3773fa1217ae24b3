//! Where the password comes from: nowhere, a value, or an async provider.
//!
//! This module may know secrets and must not show them: nothing here formats one.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::{ErrorKind, Fault, Outcome};

type Answer = Result<String, Box<dyn StdError + Send + Sync>>;
type Provider = dyn Fn() -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync;

#[derive(Clone, Default)]
pub(super) enum Password {
    #[default]
    Unset,
    Value(Arc<str>),
    Provider(Arc<Provider>),
}

impl Password {
    /// An empty password counts as none, as in libpq.
    pub(super) fn value(password: &str) -> Self {
        if password.is_empty() { Self::Unset } else { Self::Value(password.into()) }
    }

    pub(super) fn provider<F, Fut>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        Self::Provider(Arc::new(move || Box::pin(provider())))
    }

    pub(super) fn is_set(&self) -> bool {
        !matches!(self, Self::Unset)
    }

    /// The password for one handshake; a provider is asked anew each time.
    pub(super) async fn get(&self) -> Result<Option<String>, Fault> {
        match self {
            Self::Unset => Ok(None),
            Self::Value(password) => Ok(Some(password.as_ref().to_owned())),
            Self::Provider(provider) => match provider().await {
                Ok(password) => Ok((!password.is_empty()).then_some(password)),
                // Not `Auth`: the server has refused nobody, and the provider may recover.
                Err(cause) => Err(Fault::new(
                    ErrorKind::Connect,
                    Outcome::NotSent,
                    "the password provider gave no password",
                )
                .with_source(cause)),
            },
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unset => "none",
            Self::Value(_) => "<hidden>",
            Self::Provider(_) => "<provider>",
        })
    }
}
