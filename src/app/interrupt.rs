//! Ctrl-C and SIGTERM: the first asks, the second leaves at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::error::AppError;

/// Signals that end a command, and who listens.
#[derive(Debug)]
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    asked: watch::Sender<u32>,
}

impl Interrupts {
    /// Listens from now on. A closed terminal (SIGHUP) never ends a command.
    pub(super) fn listen() -> Result<Self, AppError> {
        let listen = |kind| signal(kind).map_err(AppError::environment);
        let mut hangup = listen(SignalKind::hangup())?;
        tokio::spawn(async move { while hangup.recv().await.is_some() {} });
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            asked: watch::Sender::new(0),
        })
    }

    /// How many signals have come.
    pub(super) fn asked(&self) -> watch::Receiver<u32> {
        self.asked.subscribe()
    }

    /// Waits for a signal and tells the listeners.
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        self.asked.send_modify(|asked| *asked += 1);
    }
}
