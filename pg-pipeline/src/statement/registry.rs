//! What a pool has learnt of its statements: parameter types and how long the server works on them.
//!
//! Learnt once, used by every pipe: a further pipe parses with explicit types and binds in the same write. Bounded:
//! texts made at run time must not fill the memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use postgres_types::Type;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use wire_pipeline::estimate::Estimate;

use super::{Class, StatementKey, classify};
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
    micros: Estimate,
    /// When it was used last, in uses of the registry.
    used: AtomicU64,
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
            used: AtomicU64::new(0),
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
            used: AtomicU64::new(0),
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

    pub(crate) fn key(&self) -> StatementKey<'_> {
        StatementKey { text: &self.text, hash: self.hash }
    }

    pub(crate) fn expected_micros(&self) -> u32 {
        self.micros.expected_micros()
    }

    pub(crate) fn observed_micros(&self, micros: u32) {
        self.micros.observed_micros(micros);
    }
}

/// The statements of one pool.
#[derive(Debug)]
pub(crate) struct Registry {
    learned: RwLock<HashMap<u64, Vec<Arc<Learned>>, BuildNothing>>,
    most: usize,
    clock: AtomicU64,
}

impl Registry {
    /// Keeps at least `most` statements.
    pub(crate) fn new(most: usize) -> Self {
        Self { learned: RwLock::default(), most: most.max(64), clock: AtomicU64::new(0) }
    }

    pub(crate) fn get(&self, key: StatementKey<'_>) -> Option<Arc<Learned>> {
        let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
        let found = learned.get(&key.hash)?.iter().find(|learned| learned.key() == key)?;
        found.used.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(found))
    }

    /// What is known of a text, if only the text.
    pub(crate) fn get_or_insert(&self, key: StatementKey<'_>) -> Result<Arc<Learned>, Fault> {
        if let Some(known) = self.get(key) {
            return Ok(known);
        }
        check_text(key.text)?;
        let new = Learned::new(key);
        self.insert(&new);
        Ok(new)
    }

    /// Starts again with a statement of which the knowledge is out of date; `keep_parameters` says that their types are
    /// still good. Whoever finds that out first decides.
    pub(crate) fn renew(&self, old: &Arc<Learned>, keep_parameters: bool) -> Arc<Learned> {
        self.replace(&old.renewed(keep_parameters))
    }

    /// Replaces what was known of the same text, unless that is as new.
    pub(crate) fn replace(&self, new: &Arc<Learned>) -> Arc<Learned> {
        match self.get(new.key()) {
            Some(known) if known.generation >= new.generation => known,
            _ => {
                self.insert(new);
                Arc::clone(new)
            }
        }
    }

    /// Replaces what was known of the same text.
    fn insert(&self, new: &Arc<Learned>) {
        new.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        if learned.len() >= 2 * self.most {
            forget_older_half(&mut learned);
        }
        let bucket = learned.entry(new.hash).or_default();
        bucket.retain(|known| known.key() != new.key());
        bucket.push(Arc::clone(new));
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

fn forget_older_half(learned: &mut HashMap<u64, Vec<Arc<Learned>>, BuildNothing>) {
    let mut uses: Vec<u64> =
        learned.values().flatten().map(|known| known.used.load(Ordering::Relaxed)).collect();
    uses.sort_unstable();
    let Some(middle) = uses.get(uses.len() / 2).copied() else { return };
    learned.retain(|_, bucket| {
        bucket.retain(|known| known.used.load(Ordering::Relaxed) >= middle);
        !bucket.is_empty()
    });
}

/// The key is a hash already.
pub(crate) type BuildNothing = std::hash::BuildHasherDefault<Nothing>;

#[derive(Debug, Default)]
pub(crate) struct Nothing(u64);

impl std::hash::Hasher for Nothing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(registry: &Registry, text: &str) -> Arc<Learned> {
        registry.get_or_insert(StatementKey::of(text)).expect("a plain text")
    }

    #[test]
    fn the_hash_selects_and_the_text_decides() {
        let registry = Registry::new(64);
        let key = |text| StatementKey { text, hash: 7 };
        let first = registry.get_or_insert(key("a")).expect("a plain text");
        let second = registry.get_or_insert(key("b")).expect("a plain text");
        assert!(Arc::ptr_eq(&registry.get(key("a")).expect("known"), &first));
        assert!(registry.get(key("c")).is_none());
        let new = registry.renew(&first, false);
        assert!(Arc::ptr_eq(&registry.renew(&first, false), &new), "found out a second time");
        assert!(Arc::ptr_eq(&registry.get(key("a")).expect("known"), &new));
        assert!(Arc::ptr_eq(&registry.get(key("b")).expect("known"), &second));
    }

    #[test]
    fn texts_made_at_run_time_do_not_fill_the_memory_and_used_ones_stay() {
        let registry = Registry::new(64);
        let hot = learn(&registry, "hot");
        for n in 0..10_000 {
            learn(&registry, &format!("SELECT {n}"));
            assert!(registry.get(hot.key()).is_some(), "after {n}");
        }
        assert!(registry.learned.read().expect("unpoisoned").len() <= 130);
    }

    #[test]
    fn estimates_follow_what_is_seen() {
        let learned = Learned::new(StatementKey::of("x"));
        for _ in 0..200 {
            learned.observed_micros(50_000);
        }
        assert!(learned.expected_micros() > 40_000);
        for _ in 0..200 {
            learned.observed_micros(20);
        }
        assert!(learned.expected_micros() < 100);
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
