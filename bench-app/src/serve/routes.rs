//! The routes, for any store: a plain axum application.

use std::num::IntErrorKind;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::{metrics, random};
use crate::store::{Failure, Store, WORLDS, World};

/// What a thread's handlers share.
pub(super) struct App<S> {
    /// This thread's own.
    pub(super) store: S,
    /// Every thread's, because a scrape of `/metrics` reaches any thread.
    pub(super) all: Arc<Mutex<Vec<S>>>,
}

pub(super) fn router<S: Store>(app: App<S>) -> Router {
    Router::new()
        .route("/json", get(json))
        .route("/db", get(db::<S>))
        .route("/queries", get(queries::<S>))
        .route("/metrics", get(show_metrics::<S>))
        .route("/healthz", get(healthz::<S>))
        .with_state(Arc::new(app))
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

async fn json() -> Json<Message> {
    Json(Message { message: "Hello, World!" })
}

async fn db<S: Store>(State(app): State<Arc<App<S>>>) -> Result<Json<World>, Failure> {
    app.store.world(random::up_to(WORLDS)).await.map(Json)
}

#[derive(Deserialize)]
struct Asked {
    n: Option<String>,
}

async fn queries<S: Store>(
    State(app): State<Arc<App<S>>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Vec<World>>, Failure> {
    // A query string that cannot be read asks for no number.
    let n = how_many(asked.ok().and_then(|Query(asked)| asked.n).as_deref());
    let mut worlds = Vec::with_capacity(n);
    for _ in 0..n {
        worlds.push(app.store.world(random::up_to(WORLDS)).await?);
    }
    Ok(Json(worlds))
}

/// Rows to read: held to 1..=500, and 1 when absent or not a number.
fn how_many(n: Option<&str>) -> usize {
    let n = n.unwrap_or_default();
    let n = n.parse::<i64>().unwrap_or_else(|error| match error.kind() {
        IntErrorKind::PosOverflow => i64::MAX,
        _ => 1,
    });
    n.clamp(1, 500) as usize
}

async fn show_metrics<S: Store>(State(app): State<Arc<App<S>>>) -> impl IntoResponse {
    let stores = app.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let samples: Vec<_> = stores.iter().map(Store::samples).collect();
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render(&samples))
}

async fn healthz<S: Store>(State(app): State<Arc<App<S>>>) -> Result<&'static str, Failure> {
    app.store.ping().await.map(|()| "ok")
}

#[derive(Serialize)]
struct Refusal {
    error: Reason,
}

#[derive(Serialize)]
struct Reason {
    kind: String,
    outcome: Option<String>,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = if self.unavailable {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        // The database's own words may hold data: they are not for everybody who can reach the service.
        let error = Reason { kind: self.kind, outcome: self.outcome };
        (status, Json(Refusal { error })).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::{App, how_many, router};
    use crate::http::{Answer, Client};
    use crate::store::{Failure, Metric, Sample, Store, World};

    /// A store without a database: rows are twice their id, until it is told to fail.
    #[derive(Clone, Default)]
    struct Fake {
        failure: Option<Failure>,
        running: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl Store for Fake {
        async fn connect(_: &str, _: usize) -> anyhow::Result<Self> {
            Ok(Self::default())
        }

        async fn world(&self, id: i32) -> Result<World, Failure> {
            let now = 1 + self.running.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            self.failure.clone().map_or(Ok(World { id, random_number: 2 * id }), Err)
        }

        async fn ping(&self) -> Result<(), Failure> {
            self.failure.clone().map_or(Ok(()), Err)
        }

        fn samples(&self) -> Vec<Sample> {
            let metric = Metric { name: "fake_running", counter: false, help: "Queries under way." };
            vec![Sample { metric, labels: Vec::new(), value: 3 }]
        }

        async fn close(self) {}
    }

    async fn ask(store: Fake, path: &str) -> Answer {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let addr = listener.local_addr().expect("it is bound");
        let all = Arc::new(Mutex::new(vec![store.clone()]));
        let service = router(App { store, all });
        tokio::spawn(async move { axum::serve(listener, service).await });
        let mut client = Client::connect(addr).await.expect("it listens");
        client.get(path).await.expect("it answers")
    }

    fn body(answer: &Answer) -> serde_json::Value {
        assert_eq!(answer.content_type, "application/json");
        serde_json::from_slice(&answer.body).expect("the body is JSON")
    }

    #[test]
    fn n_is_held_to_what_is_allowed() {
        for (n, rows) in [
            (None, 1),
            (Some(""), 1),
            (Some("20"), 20),
            (Some("+5"), 5),
            (Some("0"), 1),
            (Some("-3"), 1),
            (Some("501"), 500),
            (Some("many"), 1),
            (Some("2.5"), 1),
            (Some("99999999999999999999"), 500),
            (Some("-99999999999999999999"), 1),
        ] {
            assert_eq!(how_many(n), rows, "{n:?}");
        }
    }

    #[tokio::test]
    async fn json_is_a_message() {
        let answer = ask(Fake::default(), "/json").await;
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, br#"{"message":"Hello, World!"}"#.as_slice())
        );
        assert_eq!(answer.content_type, "application/json");
    }

    #[tokio::test]
    async fn db_is_one_row() {
        let answer = ask(Fake::default(), "/db").await;
        let world = body(&answer);
        let id = world["id"].as_i64().expect("an id");
        assert!((1..=10_000).contains(&id));
        assert_eq!(answer.body, format!(r#"{{"id":{id},"randomNumber":{}}}"#, 2 * id).into_bytes());
    }

    #[tokio::test]
    async fn queries_are_read_one_after_another() {
        let store = Fake::default();
        let answer = ask(store.clone(), "/queries?n=20").await;
        assert_eq!(body(&answer).as_array().map(Vec::len), Some(20));
        assert_eq!(store.most.load(Ordering::SeqCst), 1);
        for (path, rows) in [
            ("/queries", 1),
            ("/queries?n=foo", 1),
            ("/queries?n=%32%30", 20),
            ("/queries?n=501", 500),
            ("/queries?n=2&n=3", 1),
        ] {
            let answer = ask(store.clone(), path).await;
            assert_eq!(body(&answer).as_array().map(Vec::len), Some(rows), "{path}");
        }
    }

    #[tokio::test]
    async fn a_failure_names_its_kind() {
        let failure =
            Failure { kind: "Decode".into(), outcome: Some("Completed".into()), unavailable: false };
        let store = Fake { failure: Some(failure.clone()), ..Fake::default() };
        let answer = ask(store, "/queries?n=20").await;
        assert_eq!(answer.status, 500);
        assert_eq!(body(&answer), serde_json::json!({"error": {"kind": "Decode", "outcome": "Completed"}}));

        let store = Fake { failure: Some(Failure { unavailable: true, ..failure }), ..Fake::default() };
        assert_eq!(ask(store.clone(), "/db").await.status, 503);
        assert_eq!(ask(store, "/healthz").await.status, 503);
    }

    #[tokio::test]
    async fn metrics_and_health_are_text() {
        let answer = ask(Fake::default(), "/metrics").await;
        assert!(String::from_utf8_lossy(&answer.body).ends_with("fake_running{thread=\"0\"} 3\n"));
        assert_eq!(ask(Fake::default(), "/healthz").await.body, b"ok");
    }
}
