//! A TCP relay on loopback, which can delay, stall and cut connections, and divides them over
//! several servers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// Most bytes that pass at once.
const CHUNK: usize = 1 << 14;

/// What happens to the bytes of a relay.
#[derive(Clone, Debug, Default)]
struct Line {
    /// The time that bytes take in each direction.
    delay: Duration,
    /// Whether bytes to servers wait.
    holds_requests: bool,
    /// Whether bytes to clients wait.
    holds_answers: bool,
    /// Number of the first connection that is not dead. Nothing passes a dead one, and nobody
    /// closes it.
    alive_from: usize,
    /// Number of the first connection that is not closed.
    open_from: usize,
    /// Number of connections so far.
    connections: usize,
    /// The server that gets no new connections.
    left_out: Option<usize>,
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug)]
enum Direction {
    ToServer,
    ToClient,
}

impl Line {
    fn holds(&self, connection: usize, direction: Direction) -> bool {
        let is_held = match direction {
            Direction::ToServer => self.holds_requests,
            Direction::ToClient => self.holds_answers,
        };
        is_held || connection < self.alive_from
    }
}

/// A running relay. Its drop closes all connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    line: watch::Sender<Line>,
    accepts: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay to servers. Each connection goes to the next one that accepts it.
    pub async fn start(servers: Vec<SocketAddr>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let line = watch::Sender::new(Line::default());
        let accepts = tokio::spawn(accept(listener, servers, line.clone()));
        Ok(Self {
            address,
            line,
            accepts,
        })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.line.borrow().connections
    }

    /// Delays all bytes from now on, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.line.send_modify(|line| line.delay = delay);
    }

    /// Keeps bytes from servers, and those from clients, until the next call of this.
    pub fn hold(&self, requests: bool, answers: bool) {
        self.line.send_modify(|line| {
            (line.holds_requests, line.holds_answers) = (requests, answers);
        });
    }

    /// Makes nothing pass the present connections any more, which stay open, as after a failure
    /// between both ends.
    pub fn kill_present(&self) {
        self.line
            .send_modify(|line| line.alive_from = line.connections);
    }

    /// Gives no new connections to this one of the servers, as a load balancer that knows that it
    /// is not ready.
    pub fn leave_out(&self, server: Option<usize>) {
        self.line.send_modify(|line| line.left_out = server);
    }

    /// Closes the present connections.
    pub fn cut(&self) {
        self.line
            .send_modify(|line| line.open_from = line.connections);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

async fn accept(listener: TcpListener, servers: Vec<SocketAddr>, line: watch::Sender<Line>) {
    let mut open = JoinSet::new();
    // A client that does not get a connection tries again by itself.
    while let Ok((client, _)) = listener.accept().await {
        let mut number = 0;
        line.send_modify(|line| {
            number = line.connections;
            line.connections += 1;
        });
        open.spawn(relayed(client, servers.clone(), number, line.subscribe()));
        while open.try_join_next().is_some() {}
    }
}

/// Passes the bytes of a connection until one end closes it, or it is cut.
async fn relayed(
    client: TcpStream,
    servers: Vec<SocketAddr>,
    number: usize,
    mut line: watch::Receiver<Line>,
) {
    let of_directions = line.clone();
    let left_out = line.borrow().left_out;
    let Some(server) = connected(&servers, number, left_out).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let passes = async {
        let line = of_directions;
        let requests = pass(
            from_client,
            to_server,
            number,
            Direction::ToServer,
            line.clone(),
        );
        let answers = pass(from_server, to_client, number, Direction::ToClient, line);
        // An end of one direction closes both, as a broken connection does.
        tokio::select! {
            _ = requests => {}
            _ = answers => {}
        }
    };
    let is_cut = line.wait_for(|line| number < line.open_from);
    tokio::select! {
        () = passes => {}
        _ = is_cut => {}
    }
}

/// A connection to the next server that accepts it.
async fn connected(
    servers: &[SocketAddr],
    number: usize,
    left_out: Option<usize>,
) -> Option<TcpStream> {
    let turns = (0..servers.len()).map(|tried| (number + tried) % servers.len());
    for server in turns.filter(|server| Some(*server) != left_out) {
        if let Ok(stream) = TcpStream::connect(servers[server]).await {
            return Some(stream);
        }
    }
    None
}

/// Passes bytes in one direction, each after its delay.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: usize,
    direction: Direction,
    mut line: watch::Receiver<Line>,
) -> io::Result<()> {
    let (queue, mut queued) = mpsc::unbounded_channel();
    let delays = line.clone();
    let reads = async move {
        loop {
            let mut chunk = vec![0; CHUNK];
            let count = from.read(&mut chunk).await?;
            if count == 0 {
                return Ok::<_, io::Error>(());
            }
            chunk.truncate(count);
            let due = Instant::now() + delays.borrow().delay;
            if queue.send((due, chunk)).is_err() {
                return Ok(());
            }
        }
    };
    let writes = async {
        while let Some((due, chunk)) = queued.recv().await {
            sleep_until(due).await;
            let passes = line.wait_for(|line| !line.holds(number, direction)).await;
            passes.map_err(io::Error::other)?;
            to.write_all(&chunk).await?;
        }
        Ok(())
    };
    tokio::try_join!(reads, writes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each byte with this one.
    async fn answering(byte: u8) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    while stream.read_u8().await.is_ok() && stream.write_u8(byte).await.is_ok() {}
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream) -> io::Result<u8> {
        stream.write_u8(0).await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn connections_are_divided_and_a_server_that_refuses_is_left_out() {
        let refuses = SocketAddr::from(([127, 0, 0, 1], 1));
        let servers = vec![answering(1).await, answering(2).await, refuses];
        let relay = Relay::start(servers).await.unwrap();
        let mut answers = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(relay.address()).await.unwrap();
            answers.push(ask(&mut stream).await.unwrap());
        }
        assert_eq!(answers, [1, 2, 1, 1]);
        assert_eq!(relay.connections(), 4);
        relay.leave_out(Some(0));
        for _ in 0..3 {
            let mut stream = TcpStream::connect(relay.address()).await.unwrap();
            assert_eq!(ask(&mut stream).await.unwrap(), 2);
        }
    }

    #[tokio::test]
    async fn bytes_are_delayed_held_and_lost_with_their_connection() {
        let relay = Relay::start(vec![answering(7).await]).await.unwrap();
        let mut first = TcpStream::connect(relay.address()).await.unwrap();
        assert_eq!(ask(&mut first).await.unwrap(), 7);
        relay.delay(Duration::from_millis(50));
        let begun = Instant::now();
        assert_eq!(ask(&mut first).await.unwrap(), 7);
        assert!(begun.elapsed() >= Duration::from_millis(100));
        relay.delay(Duration::ZERO);

        relay.hold(false, true);
        first.write_u8(0).await.unwrap();
        relay.kill_present();
        relay.hold(false, false);
        let mut second = TcpStream::connect(relay.address()).await.unwrap();
        assert_eq!(ask(&mut second).await.unwrap(), 7);
        relay.cut();
        // Nothing has passed the dead connection before its end.
        for mut stream in [first, second] {
            assert!(stream.read_u8().await.is_err());
        }
    }
}
