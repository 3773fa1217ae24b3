//! Logs in to PostgreSQL (trust, password, md5, SCRAM), tells the version, and can run a script.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context as _, bail};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
use postgres_protocol::message::backend::{ErrorResponseBody, Message};
use postgres_protocol::message::frontend;

use crate::address::Address;

/// One session, open until it is dropped.
pub(crate) struct Session<S = TcpStream> {
    stream: S,
    input: BytesMut,
    version: String,
    method: Method,
}

/// How the server let us in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Trust,
    Password,
    Md5,
    Scram,
}

/// The server answered, and the answer was no.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: String,
    message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refused {}

impl Session {
    pub(crate) fn open(address: &Address) -> anyhow::Result<Self> {
        Session::over(super::connect(address)?, address)
    }
}

impl<S: Read + Write> Session<S> {
    pub(crate) fn over(stream: S, address: &Address) -> anyhow::Result<Self> {
        let mut session =
            Self { stream, input: BytesMut::new(), version: String::new(), method: Method::Trust };
        let database = if address.database.is_empty() { &address.user } else { &address.database };
        session.send(|output| {
            frontend::startup_message([("user", address.user.as_str()), ("database", database)], output)
        })?;
        session.log_in(address)?;
        session.finish()?;
        Ok(session)
    }

    /// `server_version`, as the server reports it at login.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Runs statements that return nothing of interest, all in one message.
    pub(crate) fn run(&mut self, script: &str) -> anyhow::Result<()> {
        self.send(|output| frontend::query(script, output))?;
        self.finish()
    }

    fn log_in(&mut self, address: &Address) -> anyhow::Result<()> {
        let password = address.password.as_bytes();
        loop {
            match self.receive()? {
                Message::AuthenticationOk => return Ok(()),
                Message::AuthenticationCleartextPassword => {
                    self.method = Method::Password;
                    self.send(|output| frontend::password_message(password, output))?;
                }
                Message::AuthenticationMd5Password(body) => {
                    self.method = Method::Md5;
                    let hash = md5_hash(address.user.as_bytes(), password, body.salt());
                    self.send(|output| frontend::password_message(hash.as_bytes(), output))?;
                }
                Message::AuthenticationSasl(_) => self.scram(password)?,
                Message::ErrorResponse(body) => return Err(refused(&body).into()),
                _ => bail!("the server asks for a way of logging in that this probe does not know"),
            }
        }
    }

    fn scram(&mut self, password: &[u8]) -> anyhow::Result<()> {
        self.method = Method::Scram;
        let mut scram = ScramSha256::new(password, sasl::ChannelBinding::unsupported());
        self.send(|output| frontend::sasl_initial_response(sasl::SCRAM_SHA_256, scram.message(), output))?;
        match self.receive()? {
            Message::AuthenticationSaslContinue(body) => scram.update(body.data())?,
            Message::ErrorResponse(body) => return Err(refused(&body).into()),
            _ => bail!("an answer out of turn while logging in"),
        }
        self.send(|output| frontend::sasl_response(scram.message(), output))?;
        match self.receive()? {
            Message::AuthenticationSaslFinal(body) => Ok(scram.finish(body.data())?),
            Message::ErrorResponse(body) => Err(refused(&body).into()),
            _ => bail!("an answer out of turn while logging in"),
        }
    }

    // Reads up to ReadyForQuery. The first error is the one that counts.
    fn finish(&mut self) -> anyhow::Result<()> {
        let mut error = None;
        loop {
            match self.receive()? {
                Message::ReadyForQuery(_) => return error.map_or(Ok(()), Err),
                Message::ErrorResponse(body) => {
                    let refusal = refused(&body);
                    // After a fatal error the server closes without ReadyForQuery.
                    if matches!(refusal.code.get(..2), Some("28" | "3D" | "53" | "57")) {
                        return Err(refusal.into());
                    }
                    error.get_or_insert(refusal.into());
                }
                Message::ParameterStatus(body) if body.name()? == "server_version" => {
                    body.value()?.clone_into(&mut self.version);
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, build: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) -> anyhow::Result<()> {
        let mut output = BytesMut::new();
        build(&mut output)?;
        self.stream.write_all(&output).context("writing to the server")
    }

    fn receive(&mut self) -> anyhow::Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            let mut chunk = [0; 4096];
            let count = self.stream.read(&mut chunk).context("reading from the server")?;
            if count == 0 {
                bail!("the server closed the connection");
            }
            self.input.extend_from_slice(&chunk[..count]);
        }
    }
}

fn refused(body: &ErrorResponseBody) -> Refused {
    let mut refusal = Refused { code: String::new(), message: String::new() };
    let mut fields = body.fields();
    while let Ok(Some(field)) = fields.next() {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => refusal.code = value,
            b'M' => refusal.message = value,
            _ => {}
        }
    }
    refusal
}

#[cfg(all(test, feature = "supervisor"))]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::server::{Kind, Server};
    use crate::{TEST_ROLES, client};

    const METHODS: [Method; 4] = [Method::Trust, Method::Password, Method::Md5, Method::Scram];

    fn login(server: &Server, user: &str, password: &str) -> Address {
        Address::parse(&server.url_for(user, password)).unwrap()
    }

    #[test]
    fn each_test_role_logs_in_its_own_way_over_tcp() {
        let server = client::started(Kind::Postgres);
        for ((user, password), method) in TEST_ROLES.into_iter().zip(METHODS) {
            let session = Session::open(&login(&server, user, password)).unwrap();
            assert_eq!(session.method, method, "{user}");
            assert_eq!(session.version(), server.version());
        }
    }

    #[test]
    fn each_test_role_logs_in_its_own_way_over_the_unix_socket() {
        let server = client::started(Kind::Postgres);
        // Containers have none.
        let Some(socket) = server.socket() else { return };
        for ((user, password), method) in TEST_ROLES.into_iter().zip(METHODS) {
            let stream = UnixStream::connect(socket).unwrap();
            let session = Session::over(stream, &login(&server, user, password)).unwrap();
            assert_eq!(session.method, method, "{user}");
        }
    }

    #[test]
    fn a_wrong_password_is_refused_and_a_failed_script_says_why() {
        let server = client::started(Kind::Postgres);
        for (user, _) in &TEST_ROLES[1..] {
            let error = Session::open(&login(&server, user, "wrong")).err().unwrap();
            assert_eq!(error.downcast_ref::<Refused>().unwrap().code, "28P01", "{user}");
        }
        let mut session = Session::open(&Address::parse(server.url()).unwrap()).unwrap();
        let error = session.run("SELECT 1; SELECT * FROM no_such_table; SELECT 2").unwrap_err();
        assert_eq!(error.downcast_ref::<Refused>().unwrap().code, "42P01");
        session.run("SELECT 3").unwrap();
    }
}
