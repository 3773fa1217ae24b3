//! A minimal HTTP/1.1 client on hyper: one connection, one request at a time, whole bodies.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use axum::body::Body;
use axum::http::{Request, header};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Larger answers than this are an error; the largest that the service gives has 500 rows.
const LIMIT: usize = 1 << 20;

/// A connection to the service.
pub(crate) struct Client {
    sender: SendRequest<Body>,
    host: String,
}

/// An answer with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body for a message.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(200).collect()
    }
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the sender; what it would report reaches the sender, too.
        tokio::spawn(connection);
        Ok(Self { sender, host: addr.to_string() })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer> {
        let request = Request::get(path).header(header::HOST, &self.host).body(Body::empty())?;
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let body =
            axum::body::to_bytes(Body::new(body), LIMIT).await.context("the body did not arrive whole")?;
        Ok(Answer {
            status: head.status.as_u16(),
            content_type: content_type.unwrap_or_default().to_owned(),
            body: body.to_vec(),
        })
    }
}
