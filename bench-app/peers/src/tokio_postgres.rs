//! tokio-postgres: its `Client` pipelines what several tasks ask at once, so that all requests share a few of them, in
//! turn. A prepared statement belongs to its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use bench_app::{Failure, Sample, Store, World};
use tokio_postgres::{Client, Error, NoTls, Statement};

/// Requests share all clients.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Clients>);

struct Clients {
    clients: Vec<(Client, Statement)>,
    next: AtomicUsize,
}

impl Shared {
    fn next(&self) -> &(Client, Statement) {
        let Clients { clients, next } = &*self.0;
        &clients[next.fetch_add(1, Ordering::Relaxed) % clients.len()]
    }
}

impl Store for Shared {
    async fn connect(url: &str, connections: usize) -> Result<Self> {
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            let (client, connection) =
                tokio_postgres::connect(url, NoTls).await.context("the database cannot be reached")?;
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    eprintln!("bench-peers: a connection ended: {error}");
                }
            });
            let by_id = client.prepare("SELECT id, randomnumber FROM world WHERE id = $1").await?;
            clients.push((client, by_id));
        }
        Ok(Self(Arc::new(Clients { clients, next: AtomicUsize::new(0) })))
    }

    async fn world(&self, id: i32) -> Result<World, Failure> {
        let (client, by_id) = self.next();
        let row = client.query_one(by_id, &[&id]).await.map_err(|error| failure(&error))?;
        Ok(World { id: row.get(0), random_number: row.get(1) })
    }

    async fn ping(&self) -> Result<(), Failure> {
        self.next().0.simple_query("").await.map(drop).map_err(|error| failure(&error))
    }

    fn samples(&self) -> Vec<Sample> {
        Vec::new()
    }

    async fn close(self) {}
}

fn failure(error: &Error) -> Failure {
    Failure { kind: error.to_string(), outcome: None, unavailable: error.is_closed() }
}
