//! Seeing a server answer: the smallest clients that can tell a version, and for PostgreSQL run a set-up script.
//! Blocking, over plain TCP. They stand apart from the drivers on purpose: a fault in a driver must not look like a
//! server that failed to start.

pub(crate) mod mysql;
pub(crate) mod postgres;

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::address::Address;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// The pause between two looks at a server that is starting.
const PAUSE: Duration = Duration::from_millis(40);

fn connect(address: &Address) -> anyhow::Result<TcpStream> {
    let mut last = None;
    let candidates = (address.host.as_str(), address.port)
        .to_socket_addrs()
        .with_context(|| format!("looking up {}", address.host))?;
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, ANSWER) {
            Ok(stream) => {
                stream.set_read_timeout(Some(ANSWER))?;
                stream.set_write_timeout(Some(ANSWER))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| anyhow::anyhow!("no address"), Into::into))
        .with_context(|| format!("connecting to {}", address.place()))
}

/// Asks until there is an answer, `alive` reports an end, or the time is over.
pub(crate) fn until_ready<T>(
    limit: Duration,
    mut ask: impl FnMut() -> anyhow::Result<T>,
    mut alive: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("no answer within {} s", limit.as_secs())));
            }
            Err(_) => alive()?,
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_server_has_ended() {
        let error = until_ready(
            Duration::from_secs(60),
            || anyhow::bail!("not yet") as anyhow::Result<()>,
            || anyhow::bail!("it exited"),
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "it exited");
    }

    #[test]
    fn waiting_ends_with_the_last_reason_when_the_time_is_over() {
        let error = until_ready(
            Duration::ZERO,
            || anyhow::bail!("connection refused") as anyhow::Result<()>,
            || Ok(()),
        )
        .unwrap_err();
        assert!(format!("{error:#}").ends_with("connection refused"), "{error:#}");
    }
}
