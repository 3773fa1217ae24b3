//! What a pool has learnt of its statements: parameter types and how long the server works on them.
//!
//! Learnt once, used by every pipe: a further pipe parses with explicit types and binds in the same write. How texts
//! are found and how many are kept is the engine's.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use postgres_types::Type;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use wire_pipeline::estimate::Estimate;

use super::{Class, Keyed, StatementKey, classify};
use crate::error::{ErrorKind, Fault, Outcome};

/// What is known of a statement. The text is shared by everything that refers to it.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) text: Box<str>,
    pub(crate) hash: u64,
    pub(crate) class: Class,
    /// How often what was known of the text turned out to be out of date: what a connection has prepared from older
    /// knowledge is of no use.
    pub(crate) generation: u64,
    /// Known once some server has been asked.
    parameters: OnceLock<Box<[Type]>>,
    /// How long the server works on it.
    pub(crate) micros: Estimate,
    /// Since when somebody is asking a server.
    asking: Mutex<Option<Instant>>,
    asked: Notify,
}

impl Learned {
    pub(crate) fn new(key: StatementKey<'_>) -> Arc<Self> {
        Arc::new(Self {
            text: key.text.into(),
            hash: key.hash,
            class: classify(key.text),
            generation: 0,
            parameters: OnceLock::new(),
            micros: Estimate::default(),
            asking: Mutex::default(),
            asked: Notify::new(),
        })
    }

    /// The same statement for connections to prepare anew, with the parameter types if they are still good.
    pub(crate) fn renewed(&self, keep_parameters: bool) -> Arc<Self> {
        let parameters = match self.parameters() {
            Some(types) if keep_parameters => OnceLock::from(Box::from(types)),
            _ => OnceLock::new(),
        };
        Arc::new(Self {
            text: self.text.clone(),
            hash: self.hash,
            class: self.class,
            generation: self.generation + 1,
            parameters,
            micros: self.micros.clone(),
            asking: Mutex::default(),
            asked: Notify::new(),
        })
    }

    /// A statement of which it is known that it takes no parameters.
    pub(crate) fn without_parameters(text: &str) -> Arc<Self> {
        let learned = Self::new(StatementKey::of(text));
        learned.learn(Box::new([]));
        learned
    }

    /// The parameter types, if they are known.
    pub(crate) fn parameters(&self) -> Option<&[Type]> {
        self.parameters.get().map(|types| &**types)
    }

    /// The first who learns it decides.
    pub(crate) fn learn(&self, types: Box<[Type]>) {
        let _ = self.parameters.set(types);
    }

    /// Makes the caller the one who asks a server, unless somebody is asking: then the caller waits for that. Who
    /// takes too long may be stuck behind a slow statement, and another one asks too.
    pub(crate) fn ask(&self, now: Instant) -> Ask<'_> {
        let asked = self.asked.notified();
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        match *asking {
            Some(since) if now < since + PATIENCE => Ask::Wait { asked, until: since + PATIENCE },
            _ => {
                *asking = Some(now);
                Ask::First(Asking { learned: self, since: now })
            }
        }
    }
}

impl Keyed for Learned {
    fn key(&self) -> StatementKey<'_> {
        StatementKey { text: &self.text, hash: self.hash }
    }
}

/// The statements of one pool.
#[derive(Debug)]
pub(crate) struct Registry {
    known: wire_pipeline::statement::Registry<Learned>,
}

impl Registry {
    /// Keeps at least `most` statements.
    pub(crate) fn new(most: usize) -> Self {
        Self { known: wire_pipeline::statement::Registry::new(most) }
    }

    /// What is known of a text, if only the text.
    pub(crate) fn get_or_insert(&self, key: StatementKey<'_>) -> Result<Arc<Learned>, Fault> {
        if let Some(known) = self.known.get(key) {
            return Ok(known);
        }
        check_text(key.text)?;
        let new = Learned::new(key);
        self.known.insert(&new);
        Ok(new)
    }

    /// Starts again with a statement of which the knowledge is out of date; `keep_parameters` says that their types are
    /// still good. Whoever finds that out first decides.
    pub(crate) fn renew(&self, old: &Arc<Learned>, keep_parameters: bool) -> Arc<Learned> {
        self.replace(&old.renewed(keep_parameters))
    }

    /// Replaces what was known of the same text, unless that is as new.
    pub(crate) fn replace(&self, new: &Arc<Learned>) -> Arc<Learned> {
        match self.known.get(new.key()) {
            Some(known) if known.generation >= new.generation => known,
            _ => {
                self.known.insert(new);
                Arc::clone(new)
            }
        }
    }
}

/// Texts travel as C strings.
pub(crate) fn check_text(text: &str) -> Result<(), Fault> {
    let what = if text.as_bytes().contains(&0) {
        "holds a NUL character, which PostgreSQL does not take"
    } else if text.len() > LARGEST_TEXT {
        "is larger than the 1 GB that the server takes"
    } else {
        return Ok(());
    };
    Err(Fault::new(ErrorKind::Encode, Outcome::NotSent, format!("the statement's text {what}")))
}

/// The server's limit on a message is a little above (`PQ_LARGE_MESSAGE_LIMIT` in its sources).
const LARGEST_TEXT: usize = 0x3fff_0000;

/// How long the others wait for one who asks.
const PATIENCE: Duration = Duration::from_millis(50);

/// Who asks a server.
pub(crate) enum Ask<'a> {
    /// The caller does.
    First(Asking<'a>),
    /// Somebody else does, and is waited for until then.
    Wait { asked: Notified<'a>, until: Instant },
}

/// Whoever holds it asks a server; when it is dropped, those who wait look at what is known then.
pub(crate) struct Asking<'a> {
    learned: &'a Learned,
    since: Instant,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        {
            let mut asking = self.learned.asking.lock().unwrap_or_else(PoisonError::into_inner);
            // Unless another one has taken over.
            if *asking == Some(self.since) {
                *asking = None;
            }
        }
        self.learned.asked.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_that_is_out_of_date_is_renewed_once() {
        let registry = Registry::new(64);
        let key = StatementKey::of("a");
        let first = registry.get_or_insert(key).expect("a plain text");
        assert!(Arc::ptr_eq(&registry.get_or_insert(key).expect("a plain text"), &first));
        let new = registry.renew(&first, false);
        assert!(Arc::ptr_eq(&registry.renew(&first, false), &new), "found out a second time");
        assert!(Arc::ptr_eq(&registry.get_or_insert(key).expect("a plain text"), &new));
    }

    #[test]
    fn a_text_that_cannot_travel_is_refused() {
        let registry = Registry::new(64);
        let refused = registry.get_or_insert(StatementKey::of("SELECT '\0'")).expect_err("NUL");
        assert!(refused.to_string().contains("NUL"), "{refused}");
    }

    #[tokio::test]
    async fn one_asks_and_the_others_look_again_when_it_has_gone() {
        let learned = Learned::new(StatementKey::of("x"));
        let now = Instant::now();
        let Ask::First(asking) = learned.ask(now) else { panic!("nobody asks yet") };
        let Ask::Wait { asked, until } = learned.ask(now) else { panic!("one asks") };
        assert_eq!(until, now + PATIENCE);
        drop(asking);
        asked.await;
        assert!(matches!(learned.ask(now), Ask::First(_)));
    }

    #[tokio::test]
    async fn who_takes_too_long_is_joined_by_one_other_at_a_time() {
        let learned = Learned::new(StatementKey::of("x"));
        let now = Instant::now();
        let Ask::First(slow) = learned.ask(now) else { panic!("nobody asks yet") };
        let Ask::First(second) = learned.ask(now + PATIENCE) else { panic!("the first is slow") };
        assert!(matches!(learned.ask(now + PATIENCE), Ask::Wait { .. }));
        drop(slow);
        assert!(matches!(learned.ask(now + PATIENCE), Ask::Wait { .. }), "the second is asking");
        drop(second);
        assert!(matches!(learned.ask(now + PATIENCE), Ask::First(_)));
    }
}
