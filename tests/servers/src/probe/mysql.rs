//! Reads MySQL's greeting, which a server sends only when it is ready and which carries its version.

use std::io::Read as _;

use anyhow::{Context as _, ensure};

use crate::address::Address;

/// The server's version from its greeting.
pub(crate) fn version(address: &Address) -> anyhow::Result<String> {
    let mut stream = super::connect(address)?;
    let mut header = [0; 4];
    stream.read_exact(&mut header).context("reading the server's greeting")?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    ensure!(length <= 4096, "what answers there is no MySQL server");
    let mut greeting = vec![0; length as usize];
    stream.read_exact(&mut greeting).context("reading the server's greeting")?;
    greeting_version(&greeting)
}

// MySQL internals, Protocol::HandshakeV10: a byte 10, then the version up to a zero byte. An ERR packet begins with 255.
fn greeting_version(greeting: &[u8]) -> anyhow::Result<String> {
    match greeting {
        [10, rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == 0).context("a greeting without an end")?;
            Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
        }
        [255, _, _, message @ ..] => anyhow::bail!("{}", String::from_utf8_lossy(message)),
        _ => anyhow::bail!("what answers there is no MySQL server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_ends_at_the_zero_byte() {
        assert_eq!(greeting_version(b"\x0a9.7.4\0\x08\0\0\0").unwrap(), "9.7.4");
    }

    #[test]
    fn a_refusal_is_passed_on_and_noise_is_refused() {
        let error = greeting_version(b"\xff\x10\x04Too many connections").unwrap_err();
        assert_eq!(error.to_string(), "Too many connections");
        assert!(greeting_version(b"SSH-2.0").is_err());
        assert!(greeting_version(b"").is_err());
    }
}
