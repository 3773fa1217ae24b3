//! The service as a process of its own: this very program, started with `serve`, or `bench-peers`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::cli::{CompareOptions, Subject};
use crate::http::Client;
use crate::{process, serve};

/// Connecting and the first answer may take this long.
const START: Duration = Duration::from_secs(30);

/// So may stopping, before it is ended by force.
const STOP: Duration = Duration::from_secs(15);

/// A service that answers. Dropped, it is ended by force.
pub(super) struct Service {
    child: Child,
    pub(super) pid: u32,
    pub(super) addr: SocketAddr,
}

impl Service {
    pub(super) async fn start(subject: Subject, options: &CompareOptions, url: &str) -> Result<Self> {
        let program = std::env::current_exe().context("this program does not know its own file")?;
        let mut command = match subject {
            Subject::Own(access) => {
                let mut command = Command::new(program);
                command.args(["serve", "--access", &access.to_string()]);
                command
            }
            Subject::Peer(peer) => {
                let mut command = Command::new(peers(&program)?);
                command.args(["--driver", peer.name()]);
                command
            }
        };
        // The allocator gives free memory back at once, in every variant alike: otherwise how much it happens to keep
        // decides the peak.
        command.env("MIMALLOC_PURGE_DELAY", "0");
        if let Some(threads) = options.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        let mut child = command
            .args(["--url", url])
            .args(["--connections", &options.connections.to_string()])
            .args(["--addr", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the service cannot be started")?;
        let pid = child.id().context("the service ended at once")?;
        let stdout = child.stdout.take().context("the service has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            let line = lines.next_line().await?.context("the service ended before it listened")?;
            let addr =
                line.strip_prefix(serve::LISTENING).context("the service did not say where it listens")?;
            let addr = addr.trim().parse()?;
            let health = Client::connect(addr).await?.get("/healthz").await?;
            ensure!(health.status == 200, "the service is not healthy: {}", health.text());
            Ok(addr)
        };
        let addr = timeout(START, ready).await.context("the service did not answer in time")??;
        Ok(Self { child, pid, addr })
    }

    /// Fails if the service has ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the service ended while it was measured ({status})"),
        }
    }

    /// Stops it and waits for its end, so that its connections are gone before the next one starts.
    pub(super) async fn stop(mut self) -> Result<()> {
        process::terminate(self.pid);
        let status =
            timeout(STOP, self.child.wait()).await.context("the service did not stop when told to")??;
        ensure!(status.success(), "the service did not stop cleanly ({status})");
        Ok(())
    }
}

/// The program with the services of other drivers, which stands beside this one.
fn peers(program: &Path) -> Result<PathBuf> {
    let peers = program.with_file_name(format!("bench-peers{}", std::env::consts::EXE_SUFFIX));
    ensure!(
        peers.exists(),
        "other drivers are in a program that is not there: build it by `cargo build --release -p bench-peers`"
    );
    Ok(peers)
}
