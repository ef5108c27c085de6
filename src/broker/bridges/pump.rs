//! The bytes between the two sockets of a bridge.

use super::attempt::AttemptEnd;
use super::dial::{Dialled, Stream};
use super::door::await_close;
use super::running::Ending;
use super::status::BridgeReport;
use crate::bridge::link::{Link, LinkCounts, LinkNews, Output};
use crate::bridge::{BridgeState, ConnectOrder};
use crate::broker::connection::{FarProgress, FarSocket};
use crate::clock;
use bytes::{Buf, BytesMut};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tracing::{info, warn};

/// Bytes that are read at once.
const READ: usize = 64 << 10;

/// Bytes for one side at which the other side is not read. A read may add as much again.
const ENOUGH: usize = 256 << 10;

/// Time for the last bytes of a connection.
const LAST: Duration = Duration::from_secs(1);

/// The sockets of an established connection, and the bytes on their way.
pub(super) struct Pump {
    read_there: ReadHalf<Box<dyn Stream>>,
    write_there: WriteHalf<Box<dyn Stream>>,
    here: UnixStream,
    link: Link,
    from_there: BytesMut,
    from_here: BytesMut,
    out: Output,
    /// True if bytes of the other broker came that are not handled.
    came: bool,
    /// The bytes that the kernel of the other broker had at the last deadline.
    had: u64,
    /// True if the stream to the other broker may hold bytes that it has taken.
    flushes: bool,
    /// How far the bytes are, for the shard.
    far: Arc<FarSocket>,
    progress: FarProgress,
    report: Arc<BridgeReport>,
    /// The counts of the link as last reported.
    reported: LinkCounts,
}

impl Pump {
    /// Returns the pump of a link. `from_there` has what came behind CONNACK, and `out` what the
    /// link said first.
    pub(super) fn new(
        there: Dialled,
        here: UnixStream,
        link: Link,
        from_there: BytesMut,
        out: Output,
        report: Arc<BridgeReport>,
    ) -> Pump {
        let (read_there, write_there) = tokio::io::split(there.stream);
        Pump {
            read_there,
            write_there,
            here,
            link,
            from_there,
            from_here: BytesMut::new(),
            out,
            came: false,
            had: 0,
            flushes: false,
            far: there.far,
            progress: FarProgress::default(),
            report,
            reported: LinkCounts::default(),
        }
    }

    /// Passes bytes until the connection ends, and says so to both sides.
    pub(super) async fn run(
        mut self,
        ends: &mut watch::Receiver<Ending>,
        orders: &mut watch::Receiver<ConnectOrder>,
    ) -> AttemptEnd {
        let end = loop {
            let handled = self.handle();
            self.tell();
            if let Err(end) = handled {
                break end;
            }
            if let Err(end) = self.step(ends, orders).await {
                // Acknowledgements that came before the end count. Behind a fault of a packet nothing is
                // handled, because the packets before it would be handled twice.
                let _ = self.handle();
                break end;
            }
        };
        self.finish(&end).await;
        self.far.end();
        self.tell();
        end
    }

    /// Waits until a socket has or takes bytes, or a deadline or an order comes.
    async fn step(
        &mut self,
        ends: &mut watch::Receiver<Ending>,
        orders: &mut watch::Receiver<ConnectOrder>,
    ) -> Result<(), AttemptEnd> {
        let deadline = self.link.deadline();
        let wait = deadline.since(clock::now());
        let (mut read_here, mut write_here) = self.here.split();
        let Output { here: for_here, there: for_there } = &mut self.out;
        tokio::select! {
            _ = ends.changed() => return Err(AttemptEnd::Ended(*ends.borrow())),
            _ = orders.changed() => {
                if *orders.borrow_and_update() == ConnectOrder::Disconnect {
                    return Err(AttemptEnd::Ordered);
                }
            }
            read = self.read_there.read_buf(&mut self.from_there), if for_here.len() < ENOUGH => {
                if read.map_err(AttemptEnd::There)? == 0 {
                    return Err(AttemptEnd::ClosedThere);
                }
                self.came = true;
            }
            read = read_here.read_buf(&mut self.from_here), if for_there.len() < ENOUGH => {
                if read? == 0 {
                    return Err(AttemptEnd::ClosedHere);
                }
            }
            written = write_or_flush(&mut self.write_there, for_there), if self.flushes || !for_there.is_empty() => {
                let written = written.map_err(AttemptEnd::There)?;
                for_there.drain(..written);
                self.link.wrote(clock::now(), written);
                self.flushes = written > 0;
                self.progress.written += written as u64;
                if !self.flushes {
                    self.progress.flushed = self.progress.written;
                }
            }
            written = write_here.write(for_here), if !for_here.is_empty() => {
                for_here.drain(..written?);
            }
            () = tokio::time::sleep(wait), if !deadline.is_never() => {}
        }
        Ok(())
    }

    /// Lets the link handle what came, and its deadline.
    fn handle(&mut self) -> Result<(), AttemptEnd> {
        let now = clock::now();
        let used = self.link.take_from_there(now, &self.from_there, &mut self.out)?;
        self.from_there.advance(used);
        if std::mem::take(&mut self.came) && used == 0 {
            self.link.moved(now);
        }
        // What comes from the other broker may let more pass.
        let used = self.link.take_from_here(now, &self.from_here, &mut self.out)?;
        self.from_here.advance(used);
        self.progress.handled += used as u64;
        self.far.note(FarProgress { pending: self.out.there.len(), ..self.progress });
        for buffer in [&mut self.from_there, &mut self.from_here] {
            buffer.reserve(READ);
        }
        if self.link.deadline() <= now {
            let (has, on_the_way) = self.far.arrived();
            if std::mem::replace(&mut self.had, has) < has && on_the_way > 0 {
                self.link.moved(now);
            }
            self.link.expired(now, &mut self.out)?;
        }
        Ok(())
    }

    /// Sends the last bytes to both sides, and waits until the shard has read them.
    async fn finish(&mut self, end: &AttemptEnd) {
        self.link.end(end.of_link(), &mut self.out);
        let there = async {
            let _ = self.write_there.write_all(&self.out.there).await;
            let _ = self.write_there.shutdown().await;
        };
        let here = async {
            if self.here.write_all(&self.out.here).await.is_ok() {
                let _ = self.here.shutdown().await;
            }
        };
        let _ = tokio::time::timeout(LAST, async { tokio::join!(there, here) }).await;
        await_close(&mut self.here).await;
    }

    /// Reports counts and news.
    fn tell(&mut self) {
        let counts = self.link.counts();
        let news = self.link.take_news();
        if counts == self.reported && news.is_empty() {
            let unacknowledged = self.link.unacknowledged();
            return self.report.change(|facts| facts.unacknowledged = unacknowledged);
        }
        let before = std::mem::replace(&mut self.reported, counts);
        let (link, report) = (&self.link, &self.report);
        report.change(|facts| {
            facts.counts.add(&counts, &before);
            if counts.acknowledged > before.acknowledged {
                facts.last_acknowledged = clock::now();
            }
            facts.unacknowledged = link.unacknowledged();
        });
        for news in news {
            if news == LinkNews::Established {
                self.link.announce(&mut self.out);
            }
            self.tell_news(news);
        }
    }

    fn tell_news(&self, news: LinkNews) {
        let (bridge, address, version) = self.report.change(|facts| {
            (Arc::clone(&facts.name), facts.address.clone(), facts.version.map(|version| version.name()))
        });
        match news {
            LinkNews::Established => {
                self.report.enter(clock::now(), BridgeState::Established);
                self.report.change(|facts| {
                    facts.established += 1;
                    facts.last_error.clear();
                });
                let version = version.unwrap_or_default();
                info!(event = "bridge.established", %bridge, address, version, "the bridge is connected");
            }
            LinkNews::FilterRefusedThere(filter, reason) => {
                warn!(event = "bridge.filter_refused", %bridge, address, filter, "the other broker does not let the bridge subscribe: {reason}; its messages do not come");
                self.report.change(|facts| facts.refused_filters.push(filter));
            }
            LinkNews::FilterRefusedHere(filter, reason) => {
                warn!(event = "bridge.filter_refused", %bridge, filter, "this broker does not let the bridge subscribe: {reason}; see acl_user of the bridge");
                self.report.change(|facts| facts.refused_filters.push(filter));
            }
        }
    }
}

/// Writes bytes, or without any flushes those that TLS has taken. Returns the number of bytes that
/// were written; 0 after a flush.
async fn write_or_flush(there: &mut WriteHalf<Box<dyn Stream>>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return there.flush().await.map(|()| 0);
    }
    there.write(bytes).await
}
