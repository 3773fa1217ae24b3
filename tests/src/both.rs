//! Helpers that read the same for both databases. Compiled twice, inside of `postgres` and of `mysql`: `super` is whose
//! driver and server are meant.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use test_servers::Server;

use super::{Client, Config, PipeState, Pool, config, named_config, server, without_tls};
use crate::proxy::{Faults, Proxy};
use crate::{eventually, own_name};

/// A pool of eight pipes.
pub async fn pool() -> Pool {
    Pool::builder(config().await).connect().await.expect("a pool")
}

/// A pool of so many pipes.
pub async fn pool_of(connections: usize) -> Pool {
    Pool::builder(config().await).connections(connections).connect().await.expect("a pool")
}

/// A pool of eight pipes whose connections can be told from those of other tests by their name.
pub async fn named_pool(name: &str) -> Pool {
    Pool::builder(named_config(name).await).connect().await.expect("a pool")
}

/// Waits until every pipe of the pool is up and shared.
pub async fn all_shared(pool: &Pool) {
    eventually("every pipe is shared", || async { shared_pipes(pool) == pool.stats().pipes.len() }).await;
}

/// How many pipes of the pool are up and shared.
pub fn shared_pipes(pool: &Pool) -> usize {
    pool.stats().pipes.iter().filter(|pipe| pipe.state == PipeState::Shared).count()
}

/// Waits until nothing is in flight, waits or is held.
pub async fn idle(pool: &Pool) {
    eventually("the pool holds nothing", || async {
        let stats = pool.stats();
        stats.in_flight() == 0 && stats.waiting == 0 && stats.leased == 0 && stats.answer_bytes == 0
    })
    .await;
}

/// Writes handed to the kernel on all pipes of the pool.
pub fn writes(pool: &Pool) -> u64 {
    pool.stats().pipes.iter().map(|pipe| pipe.writes).sum()
}

/// How often a pipe of the pool had to connect again.
pub fn reconnects(pool: &Pool) -> u64 {
    pool.stats().pipes.iter().map(|pipe| pipe.reconnects).sum()
}

/// Creates a table of one's own; `columns` as between the parentheses of CREATE TABLE.
pub async fn table(client: &impl Client, topic: &str, columns: &str) -> String {
    let name = own_name(topic);
    client.execute(format!("CREATE TABLE {name} ({columns})"), ()).await.expect("a table");
    name
}

/// Drops it again.
pub async fn drop_table(client: &impl Client, table: &str) {
    client.execute(format!("DROP TABLE {table}"), ()).await.expect("dropped");
}

/// How many rows it has.
pub async fn count(client: &impl Client, table: &str) -> i64 {
    let (count,): (i64,) =
        client.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("a count");
    count
}

/// A configuration for a port of the loopback, with a user.
pub fn loopback(port: u16) -> Config {
    without_tls(Config::new().host("127.0.0.1").port(port).user("somebody"))
}

/// Where the server of this run listens.
pub async fn address() -> SocketAddr {
    address_of(&server().await.expect("a server")).await
}

/// Where a server listens.
pub async fn address_of(server: &Server) -> SocketAddr {
    let place = server.url().rsplit('@').next().and_then(|rest| rest.split('/').next()).expect("a place");
    tokio::net::lookup_host(place).await.expect("resolves").next().expect("an address")
}

/// A proxy in front of the server, and a configuration that goes through it, with a name for its connections.
pub async fn through_proxy(name: &str, faults: Faults) -> (Proxy, Config) {
    let proxy = Proxy::start(address().await, faults).await;
    let config = named_config(name).await.hosts([("127.0.0.1", proxy.port())]);
    (proxy, config)
}

/// The same, with when each connection was asked for.
pub fn knocks_noted(config: Config) -> (Config, Arc<Mutex<Vec<Instant>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let config = config.transport(move |host, port| {
        noted.lock().expect("unpoisoned").push(Instant::now());
        tokio::net::TcpStream::connect((host, port))
    });
    (config, asked)
}
