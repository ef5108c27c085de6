//! What a nats-server says about itself over HTTP. Its own interface does not say whether it syncs.

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bound of an answer, in bytes. The server's has some thousand.
const MAX_ANSWER: u64 = 1024 * 1024;

#[derive(Deserialize)]
struct JetStream {
    config: Option<JetStreamConfig>,
}

#[derive(Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
}

/// Returns true if the server at `http://HOST:PORT` syncs each write. Its caller bounds the time.
///
/// # Errors
/// The reason why the server did not say it.
pub(super) async fn syncs_always(address: &str) -> Result<bool, String> {
    let host = address.strip_prefix("http://").map(|host| host.trim_end_matches('/'));
    let host = host.filter(|host| !host.contains('/')).ok_or("it is not http://HOST:PORT")?;
    let mut stream = TcpStream::connect(host).await.map_err(|error| error.to_string())?;
    // HTTP/1.0, so that the answer ends with the connection and has no chunks.
    let request = format!("GET /jsz?config=true HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
    read(&answer)
}

/// Reads the answer of the monitor.
fn read(answer: &[u8]) -> Result<bool, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("its answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("it answers {status:?}"));
    }
    let jetstream: JetStream = serde_json::from_str(body).map_err(|error| error.to_string())?;
    jetstream.config.map(|config| config.sync_always).ok_or_else(|| "JetStream is off".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monitor_says_whether_each_write_is_synced() {
        let answer = |body: &str| read(format!("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{body}").as_bytes());
        assert_eq!(answer(r#"{"config":{"max_memory":1,"sync_always":true}}"#), Ok(true));
        assert_eq!(answer(r#"{"config":{"max_memory":1}}"#), Ok(false));
        assert_eq!(answer("{}"), Err("JetStream is off".to_owned()));
        assert!(answer("<html>").is_err());
        assert_eq!(
            read(b"HTTP/1.1 404 Not Found\r\n\r\n"),
            Err("it answers \"HTTP/1.1 404 Not Found\"".to_owned())
        );
        assert!(read(b"SSH-2.0").is_err());
    }
}
