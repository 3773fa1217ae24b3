//! The process that owns servers and containers. It starts what clients ask for, once, and stops and removes all of
//! it when no client holds its lock any more. It knows nothing of tests, and clients know nothing of it but its socket.

mod record;

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use record::Record;

use crate::choice::first_that_works;
use crate::docker;
use crate::lock::Lock;
use crate::meeting::{Order, Reply, Request, RunFolder};
use crate::private;
use crate::server::{Facts, Origin};
use crate::settings::Settings;

/// What the temporary folders of supervisors are called.
pub(crate) const PREFIX: &str = "pg-pipeline-";

/// How long nobody needs us before we stop: the next test binary may be about to start.
const GRACE: Duration = Duration::from_millis(2500);
/// How long a supervisor before us may take to end.
const PREDECESSOR: Duration = Duration::from_secs(20);
/// How often we look.
const LOOK: Duration = Duration::from_millis(200);

/// Runs until no client is left, or a signal says stop.
///
/// # Errors
///
/// When another supervisor has the run folder, or the folder cannot be used.
pub fn supervise(run: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(run_in(RunFolder::at(run.to_owned())?))
}

async fn run_in(run: RunFolder) -> anyhow::Result<()> {
    let _alive = sole(&run).await?;
    record::sweep(&run.record());
    sweep_neighbours(&run);

    let temporary = temporary_folder()?;
    let record = Record::begin(run.record(), temporary.path())?;
    let socket = temporary.path().join("control.sock");
    let listener = tokio::net::UnixListener::bind(&socket)?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    point_at(&run, &socket)?;

    let servers = Arc::new(Servers {
        temporary: temporary.path().to_owned(),
        record,
        started: Mutex::default(),
        runtime: tokio::runtime::Handle::current(),
    });
    let accept = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let Ok(stream) = stream.into_std() else { continue };
            let servers = servers.clone();
            tokio::task::spawn_blocking(move || {
                if let Err(error) = serve(&stream, &servers) {
                    eprintln!("a client went away: {error:#}");
                }
            });
        }
    };
    // The lock is kept up to the end: a client that comes now waits for it, and then finds no supervisor.
    let _last = tokio::select! {
        () = accept => None,
        lock = unused(&run) => Some(lock?),
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
    };
    let _ = fs::remove_file(run.socket_pointer());
    tokio::task::spawn_blocking(move || servers.stop()).await?;
    temporary.close().context("removing the temporary folder")?;
    let _ = fs::remove_file(run.record());
    Ok(())
}

// One that was told to stop may still be cleaning up, and a neighbour may be looking whether we are dead.
async fn sole(run: &RunFolder) -> anyhow::Result<Lock> {
    let deadline = Instant::now() + PREDECESSOR;
    loop {
        if let Some(lock) = Lock::try_exclusive(&run.supervisor_lock())? {
            return Ok(lock);
        }
        ensure!(Instant::now() < deadline, "another supervisor is at work in {}", run.path().display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn unused(run: &RunFolder) -> anyhow::Result<Lock> {
    let mut since = Instant::now();
    loop {
        match Lock::try_exclusive(&run.clients_lock())? {
            Some(lock) if since.elapsed() >= GRACE => return Ok(lock),
            // Given back at once: a new client must not wait for the grace to pass.
            Some(_) => {}
            None => since = Instant::now(),
        }
        tokio::time::sleep(LOOK).await;
    }
}

// Short, because the path of a Unix socket holds little more than 100 bytes, and reachable for the servers' account.
fn temporary_folder() -> anyhow::Result<tempfile::TempDir> {
    let mut parent = std::env::temp_dir();
    if parent.as_os_str().len() > 50
        || (crate::meeting::is_root() && !crate::meeting::open_to_others(&parent))
    {
        parent = "/tmp".into();
    }
    let folder = tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir_in(&parent)
        .with_context(|| format!("creating a folder in {}", parent.display()))?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))?;
    Ok(folder)
}

// Written whole or not at all: clients look at it at any time.
fn point_at(run: &RunFolder, socket: &Path) -> anyhow::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let pointer = run.socket_pointer();
    let whole = pointer.with_extension("new");
    fs::write(&whole, socket.as_os_str().as_bytes())?;
    fs::rename(&whole, &pointer).with_context(|| format!("writing {}", pointer.display()))
}

// A change of this crate's sources moves the run folder; what a killed supervisor left in the old one is ours to end.
fn sweep_neighbours(run: &RunFolder) {
    let Some(parent) = run.path().parent().filter(|parent| parent.ends_with("run")) else { return };
    let Ok(folders) = fs::read_dir(parent) else { return };
    for folder in folders.flatten().map(|entry| entry.path()).filter(|path| path != run.path()) {
        let Ok(neighbour) = RunFolder::at(folder) else { continue };
        if let Ok(Some(_dead)) = Lock::try_exclusive(&neighbour.supervisor_lock()) {
            record::sweep(&neighbour.record());
        }
    }
}

struct Servers {
    temporary: std::path::PathBuf,
    record: Record,
    started: Mutex<HashMap<Settings, Arc<Mutex<Option<Outcome>>>>>,
    runtime: tokio::runtime::Handle,
}

/// A server that runs, or why none does. Failures are kept: the next test binary would wait for the same ones.
struct Outcome {
    reply: Reply,
    running: Option<Running>,
}

enum Running {
    Private(Box<private::Running>),
    Docker(Box<docker::Running>),
}

fn serve(stream: &UnixStream, servers: &Servers) -> anyhow::Result<()> {
    stream.set_nonblocking(false)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line).context("reading a request")?;
    let note = |text: &str| {
        let _ = answer(stream, &Reply::Note(text.to_owned()));
    };
    let reply = match request.order {
        Order::Have => servers.get(&request.settings, &note)?,
        order => servers
            .carry_out(&request.settings, order)
            .unwrap_or_else(|error| Reply::Failed(format!("{error:#}"))),
    };
    answer(stream, &reply)
}

fn answer(mut stream: &UnixStream, reply: &Reply) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line).context("answering")
}

impl Servers {
    fn get(&self, settings: &Settings, note: &dyn Fn(&str)) -> anyhow::Result<Reply> {
        let place = self
            .started
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(settings.clone())
            .or_default()
            .clone();
        // Others who want the same server wait here; who wants another one does not.
        let mut outcome = place.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.is_none() {
            *outcome = Some(self.start(settings, note)?);
        }
        Ok(outcome.as_ref().context("no outcome")?.reply.clone())
    }

    fn carry_out(&self, settings: &Settings, order: Order) -> anyhow::Result<Reply> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let place = started.get(settings).context("nobody has started it")?.clone();
        drop(started);
        let mut outcome = place.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Outcome { reply, running: Some(running) }) = outcome.as_mut() else {
            bail!("it does not run")
        };
        let (Running::Private(running), Reply::Ready { facts, .. }) = (running, &mut *reply) else {
            bail!("only private binaries can be stopped and started again")
        };
        match order {
            Order::Have => {}
            Order::Stop(how) => running.stop_by(private::signal(settings.kind, how))?,
            Order::Resume => {
                running.resume()?;
                facts.pid = Some(running.pid());
                let data = facts.folder.as_deref().context("its folder")?.join("data");
                self.record.add_process(running.pid(), &data)?;
            }
        }
        Ok(reply.clone())
    }

    fn start(&self, settings: &Settings, note: &dyn Fn(&str)) -> anyhow::Result<Outcome> {
        ensure!(self.temporary.exists(), "somebody removed {}", self.temporary.display());
        // One folder per kind and settings: two of a kind may run when two ways are forced.
        let folder = tempfile::Builder::new().prefix("s").tempdir_in(&self.temporary)?.keep();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))?;
        let (found, refusals) =
            first_that_works(settings, &settings.ways(), |way| self.try_way(way, settings, &folder, note));
        Ok(match found {
            Some((facts, running)) => {
                eprintln!("{}", facts.description());
                Outcome { reply: Reply::Ready { facts, refusals }, running: Some(running) }
            }
            None => Outcome { reply: Reply::Refused(refusals), running: None },
        })
    }

    fn try_way(
        &self,
        way: Origin,
        settings: &Settings,
        folder: &Path,
        note: &dyn Fn(&str),
    ) -> anyhow::Result<(Facts, Running)> {
        match way {
            Origin::Docker => {
                let started = self.runtime.block_on(docker::start(settings, folder, note))?;
                Ok((started.0, Running::Docker(Box::new(started.1))))
            }
            Origin::Private => {
                let may_be_killed = !settings.instance.is_empty();
                let started = private::start(settings.kind, folder, may_be_killed, &self.record, note)?;
                Ok((started.0, Running::Private(Box::new(started.1))))
            }
            Origin::Url => anyhow::bail!("a URL is the client's business"),
        }
    }

    fn stop(&self) {
        let started = std::mem::take(&mut *self.started.lock().unwrap_or_else(PoisonError::into_inner));
        std::thread::scope(|scope| {
            for place in started.into_values() {
                scope.spawn(move || {
                    let outcome = place.lock().unwrap_or_else(PoisonError::into_inner).take();
                    match outcome.and_then(|outcome| outcome.running) {
                        Some(Running::Private(mut running)) => running.stop(),
                        Some(Running::Docker(running)) => self.runtime.block_on(running.remove()),
                        None => {}
                    }
                });
            }
        });
    }
}
