//! The asking side, blocking: one server of each kind per process, and the lock that keeps them up. It reads the
//! environment, answers for URLs by itself, and leaves everything that must be started to the supervisor.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::address::Address;
use crate::choice::{Refusal, first_that_works, nothing_works, report};
use crate::executable;
use crate::lock::Lock;
use crate::meeting::{Order, Reply, Request, RunFolder, read_pointer};
use crate::probe::{self, postgres::Refused};
use crate::server::{Facts, Kind, Origin, Server};
use crate::settings::{Settings, WAY};

/// How long a supervisor may take to listen; it may have to wait for one that is cleaning up.
const LISTEN: Duration = Duration::from_secs(30);

type Place = Arc<Mutex<Option<Result<Server, String>>>>;

/// By kind, and by the name of one's own ones.
static SERVERS: Mutex<BTreeMap<(Kind, String), Place>> = Mutex::new(BTreeMap::new());
/// Held for the life of the process; the kernel lets go of it however the process ends.
static CLIENT: Mutex<Option<Lock>> = Mutex::new(None);

/// The server of this process, started if nobody has yet. An outcome is final: later callers get the same one.
pub(crate) fn server(kind: Kind) -> anyhow::Result<Server> {
    once((kind, String::new()), || get(kind))
}

/// The same for a server of this process's own: another run of the same program has another one.
pub(crate) fn own_server(kind: Kind, name: &str) -> anyhow::Result<Server> {
    let instance = format!("{name}-{}", std::process::id());
    let settings = || Ok::<_, anyhow::Error>(Settings::from_environment(kind)?.own(&instance));
    once((kind, instance.clone()), || start(settings()?, Vec::new()))
}

fn once(key: (Kind, String), get: impl FnOnce() -> anyhow::Result<Server>) -> anyhow::Result<Server> {
    let place = SERVERS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = place.get_or_insert_with(|| get().map_err(|error| format!("{error:#}")));
    outcome.clone().map_err(anyhow::Error::msg)
}

/// Carries an order out on a server of one's own. Its process, if it has one now.
pub(crate) fn order(kind: Kind, instance: &str, order: Order) -> anyhow::Result<Option<u32>> {
    let settings = Settings::from_environment(kind)?.own(instance);
    match ask_supervisor(settings, order)? {
        Ok((facts, _)) => Ok(facts.pid),
        Err(refusals) => Err(nothing_works(kind, &refusals)),
    }
}

fn get(kind: Kind) -> anyhow::Result<Server> {
    let settings = Settings::from_environment(kind)?;
    let (found, refusals) = first_that_works(&settings, &[Origin::Url], |_| {
        settings.url.clone().with_context(|| format!("{} is not set", kind.url_variable()))
    });
    if let Some(url) = found {
        // Who names a server wants that one: anything else in its place would be a surprise.
        let facts = named(kind, url).with_context(|| {
            format!(
                "{} is set, but its server cannot be used; correct it or leave it out",
                kind.url_variable()
            )
        })?;
        say(&report(&facts, &[]));
        return Ok(Server::new(facts));
    }
    if settings.only == Some(Origin::Url) {
        bail!("{WAY}=url, but {} is not set: set it to the URL of a running server", kind.url_variable());
    }
    start(settings, refusals)
}

/// A server that the supervisor starts; `refusals` say why no other one was taken.
fn start(settings: Settings, mut refusals: Vec<Refusal>) -> anyhow::Result<Server> {
    let (kind, instance) = (settings.kind, settings.instance.clone());
    match ask_supervisor(settings, Order::Have)? {
        Ok((facts, more)) => {
            refusals.extend(more);
            say(&report(&facts, &refusals));
            Ok(Server::own(facts, instance))
        }
        Err(more) => {
            refusals.extend(more);
            Err(nothing_works(kind, &refusals))
        }
    }
}

fn named(kind: Kind, url: String) -> anyhow::Result<Facts> {
    let address = Address::parse(&url)?;
    let version = match kind {
        Kind::Postgres => match probe::postgres::Session::open(&address) {
            Ok(session) => session.version().to_owned(),
            // 28000: the server wants TLS, which the probe does not speak and the driver does.
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == "28000") => {
                "of unknown version".to_owned()
            }
            Err(error) => return Err(error),
        },
        Kind::Mysql | Kind::Mariadb => probe::mysql::version(&address)?,
    };
    let source = format!("the URL in {}", kind.url_variable());
    let origin = Origin::Url;
    Ok(Facts {
        kind,
        origin,
        url,
        version,
        source,
        socket: None,
        certificate_authority: None,
        pid: None,
        folder: None,
    })
}

type Answer = Result<(Facts, Vec<Refusal>), Vec<Refusal>>;

fn ask_supervisor(settings: Settings, order: Order) -> anyhow::Result<Answer> {
    let run = RunFolder::of_environment()?;
    {
        let mut client = CLIENT.lock().unwrap_or_else(PoisonError::into_inner);
        if client.is_none() {
            *client = Some(Lock::shared(&run.clients_lock())?);
        }
    }
    let mut request = serde_json::to_vec(&Request { settings, order })?;
    request.push(b'\n');
    // A supervisor that was killed may take our connection with it; the next one starts afresh.
    let mut retries = 2;
    loop {
        match converse(&run, &request) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) if retries == 0 => bail!("the supervisor went away; its log is {}", run.log().display()),
            Err(error) if retries == 0 || !error.is::<io::Error>() => return Err(error),
            Ok(None) | Err(_) => retries -= 1,
        }
    }
}

// `None`: the supervisor closed the connection without an answer.
fn converse(run: &RunFolder, request: &[u8]) -> anyhow::Result<Option<Answer>> {
    let mut stream = reach_supervisor(run)?;
    stream.write_all(request)?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?).context("reading the supervisor's answer")? {
            Reply::Note(text) => say(&format!("test-servers: {text}")),
            Reply::Ready { facts, refusals } => return Ok(Some(Ok((facts, refusals)))),
            Reply::Failed(why) => bail!("the supervisor could not do it: {why}"),
            Reply::Refused(refusals) => return Ok(Some(Err(refusals))),
        }
    }
    Ok(None)
}

fn reach_supervisor(run: &RunFolder) -> anyhow::Result<UnixStream> {
    let _starting = Lock::exclusive(&run.start_lock())?;
    if let Some(stream) = connect(run) {
        return Ok(stream);
    }
    let executable = executable::find(&|text| say(&format!("test-servers: {text}")))?;
    let log = File::create(run.log()).with_context(|| format!("creating {}", run.log().display()))?;
    let mut supervisor = Command::new(&executable)
        .arg("supervise")
        .arg(run.path())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // A signal to the tests' process group must not reach it: it has to clean up after them.
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}", executable.display()))?;
    let deadline = Instant::now() + LISTEN;
    loop {
        if let Some(stream) = connect(run) {
            return Ok(stream);
        }
        let ended = supervisor.try_wait()?;
        if ended.is_some() || Instant::now() >= deadline {
            let log = fs::read_to_string(run.log()).unwrap_or_default();
            bail!("the supervisor of the test servers did not start: {}", log.trim());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// For this crate's own tests: a server that the supervisor started, whatever URL the environment names.
#[cfg(all(test, feature = "supervisor"))]
pub(crate) fn started(kind: Kind) -> Server {
    let settings = Settings { url: None, ..Settings::from_environment(kind).unwrap() };
    let (facts, _) = ask_supervisor(settings, Order::Have)
        .unwrap()
        .unwrap_or_else(|more| panic!("{}", nothing_works(kind, &more)));
    Server::new(facts)
}

fn connect(run: &RunFolder) -> Option<UnixStream> {
    UnixStream::connect(read_pointer(&run.socket_pointer())?).ok()
}

// Past the test harness, which swallows what `eprintln!` writes: this line belongs in every run's output.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_server_that_does_not_answer_is_an_error_and_not_a_detour() {
        // Bound and closed at once: nothing listens there.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for (kind, scheme) in [(Kind::Postgres, "postgres"), (Kind::Mysql, "mysql")] {
            let error = named(kind, format!("{scheme}://me:pw@127.0.0.1:{port}/d")).unwrap_err();
            assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error:#}");
            assert!(!format!("{error:#}").contains("pw"), "{error:#}");
        }
    }

    #[cfg(feature = "supervisor")]
    #[test]
    fn a_server_of_ones_own_stops_and_comes_back_at_its_place_and_a_shared_one_does_not_stop() {
        use crate::meeting::Stop;
        use crate::probe::postgres::Session;

        let own = own_server(Kind::Postgres, "unit").unwrap();
        let shared = started(Kind::Postgres);
        assert_ne!(own.url(), shared.url());
        assert!(shared.stop(Stop::Fast).is_err());
        if own.how() != Origin::Private {
            assert!(own.stop(Stop::Fast).is_err(), "containers stay as they are");
            return;
        }
        let address = Address::parse(own.url()).unwrap();
        let open = || Session::open(&address);
        open().unwrap().run("CREATE TABLE kept (n int)").unwrap();
        assert!(own.resume().is_err(), "it runs");
        for how in [Stop::Fast, Stop::Immediate] {
            own.stop(how).unwrap();
            assert!(open().is_err());
            let pid = own.resume().unwrap();
            assert_ne!(Some(pid), own.pid());
            probe::until_ready(Duration::from_secs(30), open, || Ok(())).unwrap();
            open().unwrap().run("SELECT n FROM kept").unwrap();
        }
        open().unwrap().run("DROP TABLE kept").unwrap();
    }

    #[cfg(feature = "supervisor")]
    #[test]
    fn a_named_server_is_used_as_it_is() {
        for kind in [Kind::Postgres, Kind::Mysql] {
            let running = started(kind);
            let facts = named(kind, running.url().to_owned()).unwrap();
            assert_eq!(facts.url, running.url());
            assert_eq!(facts.version, running.version());
            assert_eq!(facts.origin, Origin::Url);
        }
    }
}
