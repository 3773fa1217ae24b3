//! Connecting to one of several places: all addresses of a name, and how long each attempt may take.
//!
//! Knows names, addresses and time; it must not know what is spoken, or what makes an attempt fail.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::Instant;

use crate::error::{Error, ServerError};
use crate::jitter::Jitter;
use crate::socket;

/// All addresses of a name, in the resolver's order, each once; an address in text is its own. Cancel safe.
///
/// # Errors
///
/// The resolver's, and `NotFound` if it knows the name and no address.
pub async fn addresses(name: &str, port: u16) -> io::Result<Vec<IpAddr>> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    let mut addresses = Vec::new();
    for place in lookup_host((name, port)).await? {
        if !addresses.contains(&place.ip()) {
            addresses.push(place.ip());
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

/// Brings places into an order that chance decides, each time another one: whoever connects spreads over all of them.
pub fn shuffle<T>(places: &mut [T]) {
    let mut chance = Jitter::new(None, 0);
    for last in (1..places.len()).rev() {
        places.swap(last, chance.below(last + 1));
    }
}

/// A time that is shared by attempts, so that a place which says nothing leaves some to those behind it.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    end: Instant,
    left: u32,
}

impl Shares {
    /// From now on for so long, and so many attempts.
    pub fn new(time: Duration, attempts: usize) -> Self {
        Self { end: Instant::now() + time, left: u32::try_from(attempts).unwrap_or(u32::MAX) }
    }

    /// The time of the next attempt: an equal share of what is left.
    pub fn next_share(&mut self) -> Share {
        let time = self.end.saturating_duration_since(Instant::now()) / self.left.max(1);
        self.left = self.left.saturating_sub(1);
        Share { time, is_last: self.left == 0 }
    }
}

/// The time of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// How long it may take.
    pub time: Duration,
    /// None follows, so it has all that is left: whoever bounds the whole bounds this one too.
    pub is_last: bool,
}

impl Share {
    /// Runs an attempt for no longer than this, unless it is the last one. As cancel safe as the attempt.
    ///
    /// # Errors
    ///
    /// The attempt's, and of kind `Connect` when its time is up; `host` is what it tried.
    pub async fn bound<T, S: ServerError>(
        self,
        host: &(impl fmt::Display + Sync),
        attempt: impl Future<Output = Result<T, Error<S>>>,
    ) -> Result<T, Error<S>> {
        if self.is_last {
            return attempt.await;
        }
        tokio::time::timeout(self.time, attempt).await.unwrap_or_else(|_| {
            Err(socket::unreachable(host).with_source("no answer within its share of `connect_timeout`"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::Fault;
    use crate::error::ErrorKind;

    #[tokio::test]
    async fn an_address_is_its_own_and_a_name_has_all_of_its() {
        assert_eq!(
            addresses("127.0.0.1", 1).await.expect("an address"),
            ["127.0.0.1".parse::<IpAddr>().unwrap()]
        );
        assert_eq!(addresses("::1", 1).await.expect("an address"), ["::1".parse::<IpAddr>().unwrap()]);
        let local = addresses("localhost", 1).await.expect("every system knows it");
        assert!(local.iter().all(IpAddr::is_loopback) && !local.is_empty(), "{local:?}");
        assert!(addresses("no-such-host.invalid", 1).await.is_err());
    }

    #[test]
    fn an_order_by_chance_holds_everything_and_is_not_always_the_same() {
        let orders: std::collections::HashSet<Vec<u8>> = (0..200)
            .map(|_| {
                let mut places: Vec<u8> = (0..3).collect();
                shuffle(&mut places);
                places
            })
            .collect();
        assert_eq!(orders.len(), 6, "each order comes once in 200 tries");
        assert!(orders.iter().all(|order| order.iter().sum::<u8>() == 3));
        shuffle::<u8>(&mut []);
    }

    #[tokio::test(start_paused = true)]
    async fn each_attempt_has_an_equal_share_of_what_is_left() {
        let mut shares = Shares::new(Duration::from_secs(9), 3);
        let share = |seconds, is_last| Share { time: Duration::from_secs(seconds), is_last };
        assert_eq!(shares.next_share(), share(3, false));
        // It failed at once: the next one has more.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(shares.next_share(), share(4, false));
        assert_eq!(shares.next_share(), share(8, true));
        assert_eq!(Shares::new(Duration::from_secs(9), 1).next_share(), share(9, true));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_says_nothing_leaves_time_to_the_others() {
        let mut shares = Shares::new(Duration::from_secs(4), 2);
        let silent = || std::future::pending::<Result<(), Fault>>();
        let error = shares.next_share().bound(&"here", silent()).await.expect_err("its time is up");
        assert_eq!(error.kind(), ErrorKind::Connect);
        assert!(error.to_string().contains("here"), "{error}");
        assert!(
            tokio::time::timeout(Duration::from_secs(9), shares.next_share().bound(&"there", silent()))
                .await
                .is_err()
        );
    }
}
