//! The service: one runtime over all cores, as most applications have it, or one runtime per core. Of several, each has
//! its own listener on the same address (the kernel spreads the connections) and its own store; nothing is shared
//! between them but the view for `/metrics`.

mod metrics;
mod random;
mod routes;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use axum::serve::ListenerExt as _;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use self::routes::{App, router};
use crate::cli::{Access, Database, ServeOptions};
use crate::store::{Store, mysql, postgres};

/// What a service is told.
#[derive(Debug, Clone)]
pub struct Service {
    /// The database.
    pub url: String,
    /// How many connections each runtime's store gets.
    pub connections: usize,
    /// This many runtimes of one thread each; `None` for one runtime over all cores.
    pub threads: Option<usize>,
    /// Where to listen; port 0 takes a free one, which is printed.
    pub addr: SocketAddr,
}

/// What the service prints before its address, for whoever started it with port 0.
pub(crate) const LISTENING: &str = "listening on ";

/// Requests under way may take this long when the service stops.
const DRAIN: Duration = Duration::from_secs(10);

/// Runs the service until it is told to stop.
pub(crate) fn run(options: &ServeOptions) -> Result<()> {
    let service = Service {
        url: options.url.clone(),
        connections: options.access.connections_per_runtime(options.connections, options.runtimes()),
        threads: options.threads,
        addr: options.addr,
    };
    match (Database::of_url(&options.url)?, options.access) {
        (Database::Postgres, Access::Pipelined) => serve::<postgres::Pipelined>(&service),
        (Database::Postgres, Access::Checkout) => serve::<postgres::Checkout>(&service),
        (Database::Mysql, Access::Pipelined) => serve::<mysql::Pipelined>(&service),
        (Database::Mysql, Access::Checkout) => serve::<mysql::Checkout>(&service),
    }
}

impl Access {
    /// Each runtime's share of the connections. A pipelined pool needs at least four to route around slow
    /// queries.
    pub(crate) fn connections_per_runtime(self, connections: usize, runtimes: usize) -> usize {
        let share = connections.div_ceil(runtimes.max(1));
        match self {
            Self::Pipelined => share.max(4),
            Self::Checkout => share.max(1),
        }
    }
}

/// What a thread has to say to the one that started it.
enum Event {
    Ready,
    Ended(Result<()>),
}

/// Serves the table through stores of one kind, until the process is told to stop.
///
/// # Errors
///
/// If the address is taken, the database cannot be reached, or a thread fails.
pub fn serve<S: Store>(service: &Service) -> Result<()> {
    let count = service.threads.unwrap_or(1);
    let flavor = if service.threads.is_some() { Flavor::OneThread } else { Flavor::AllCores };
    let connections = service.connections;
    let (addr, listeners) = listen(service.addr, count)
        .with_context(|| format!("cannot listen on {}: choose another --addr", service.addr))?;
    let all = Arc::new(Mutex::new(Vec::with_capacity(count)));
    let (stop, stopped) = watch::channel(false);
    let (events, mut said) = mpsc::unbounded_channel();

    let mut threads = Vec::with_capacity(count);
    for (index, listener) in listeners.into_iter().enumerate() {
        let (url, all, stopped, events) =
            (service.url.clone(), Arc::clone(&all), stopped.clone(), events.clone());
        let work = move || {
            let ready = events.clone();
            let done = flavor.runtime().and_then(|runtime| {
                runtime.block_on(worker::<S>(listener, &url, connections, &all, stopped, &ready))
            });
            // Nobody listens any more once the service stops.
            let _ = events.send(Event::Ended(done));
        };
        threads.push(thread::Builder::new().name(format!("service-{index}")).spawn(work)?);
    }
    drop(events);

    let outcome = crate::block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut ready = 0;
        loop {
            let event = tokio::select! {
                event = said.recv() => event,
                _ = terminated.recv() => return Ok(()),
                _ = tokio::signal::ctrl_c() => return Ok(()),
            };
            match event {
                Some(Event::Ready) => ready += 1,
                Some(Event::Ended(done)) => return done,
                None => bail!("every thread of the service ended"),
            }
            if ready == count {
                println!("{LISTENING}{addr}");
            }
        }
    });
    // The threads may have gone already.
    let _ = stop.send(true);
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread of the service panicked"))?;
    }
    outcome
}

/// What runs a service.
#[derive(Debug, Clone, Copy)]
enum Flavor {
    OneThread,
    AllCores,
}

impl Flavor {
    fn runtime(self) -> Result<Runtime> {
        let mut builder = match self {
            Self::OneThread => Builder::new_current_thread(),
            Self::AllCores => Builder::new_multi_thread(),
        };
        Ok(builder.enable_all().build()?)
    }
}

/// One runtime's service, from connecting to the end.
async fn worker<S: Store>(
    listener: TcpListener,
    url: &str,
    connections: usize,
    all: &Arc<Mutex<Vec<S>>>,
    mut stopped: watch::Receiver<bool>,
    events: &mpsc::UnboundedSender<Event>,
) -> Result<()> {
    let store = tokio::select! {
        store = S::connect(url, connections) => store?,
        _ = stopped.wait_for(|stop| *stop) => return Ok(()),
    };
    all.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
    let service = router(App { store: store.clone(), all: Arc::clone(all) });
    let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
        // A connection that is gone already shows itself when it is read.
        let _ = stream.set_nodelay(true);
    });
    let _ = events.send(Event::Ready);

    let mut draining = stopped.clone();
    let serving = axum::serve(listener, service).with_graceful_shutdown(async move {
        // An error means that the starter is gone: then it is time to stop, too.
        let _ = stopped.wait_for(|stop| *stop).await;
    });
    let too_long = async {
        let _ = draining.wait_for(|stop| *stop).await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        done = serving => done?,
        () = too_long => {}
    }
    store.close().await;
    Ok(())
}

/// Listeners that share one address, and the address with the port that it got.
fn listen(addr: SocketAddr, count: usize) -> Result<(SocketAddr, Vec<TcpListener>)> {
    // Sharing would also succeed beside a service that is running already: without it, the address is proven free.
    drop(bind(addr, false)?);
    let first = bind(addr, count > 1)?;
    let addr = first.local_addr()?;
    let mut listeners = vec![first];
    while listeners.len() < count {
        listeners.push(bind(addr, true)?);
    }
    Ok((addr, listeners))
}

fn bind(addr: SocketAddr, shared: bool) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier run that linger in the kernel do not block the address.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::listen;
    use crate::cli::Access;

    #[test]
    fn connections_are_shared_out_over_the_threads() {
        assert_eq!(Access::Pipelined.connections_per_runtime(8, 2), 4);
        assert_eq!(Access::Pipelined.connections_per_runtime(8, 16), 4);
        assert_eq!(Access::Pipelined.connections_per_runtime(8, 1), 8);
        assert_eq!(Access::Checkout.connections_per_runtime(8, 2), 4);
        assert_eq!(Access::Checkout.connections_per_runtime(8, 3), 3);
        assert_eq!(Access::Checkout.connections_per_runtime(8, 16), 1);
    }

    #[test]
    fn threads_share_a_port_but_two_services_do_not() {
        let any = ([127, 0, 0, 1], 0).into();
        let (addr, listeners) = listen(any, 3).expect("loopback has free ports");
        assert_eq!(listeners.len(), 3);
        assert_ne!(addr.port(), 0);
        assert!(listeners.iter().all(|listener| listener.local_addr().is_ok_and(|own| own == addr)));
        assert!(listen(addr, 3).is_err(), "the address is taken");
    }
}
