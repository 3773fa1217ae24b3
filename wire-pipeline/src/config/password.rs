//! Where the password comes from: nowhere, a value, or an async provider.
//!
//! This module may know secrets and must not show them: nothing here formats one.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Outcome, ServerError};

type Answer = Result<String, Box<dyn StdError + Send + Sync>>;
type Provider = dyn Fn() -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync;

/// A password, or where to get one.
#[derive(Clone, Default)]
pub struct Password(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Unset,
    Value(Arc<str>),
    Provider(Arc<Provider>),
}

impl Password {
    /// An empty password counts as none.
    pub fn value(password: &str) -> Self {
        Self(if password.is_empty() { Source::Unset } else { Source::Value(password.into()) })
    }

    /// `provider` is asked anew for every handshake that needs a password.
    pub fn provider<F, Fut>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        Self(Source::Provider(Arc::new(move || Box::pin(provider()))))
    }

    /// Whether there is one, or a way to get one.
    pub fn is_set(&self) -> bool {
        !matches!(self.0, Source::Unset)
    }

    /// The password for one handshake; a provider is asked anew each time.
    pub async fn get<S: ServerError>(&self) -> Result<Option<String>, Error<S>> {
        match &self.0 {
            Source::Unset => Ok(None),
            Source::Value(password) => Ok(Some(password.as_ref().to_owned())),
            Source::Provider(provider) => match provider().await {
                Ok(password) => Ok((!password.is_empty()).then_some(password)),
                // Not `Auth`: the server has refused nobody, and the provider may recover.
                Err(cause) => Err(Error::new(
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
        f.write_str(match self.0 {
            Source::Unset => "none",
            Source::Value(_) => "<hidden>",
            Source::Provider(_) => "<provider>",
        })
    }
}
