//! The watched state of one journey at a time, and the seat it belongs to.
//!
//! Deadlines and the end of the drain are watched for all slots of a thread at
//! once: no timer per request, and a request can be taken away from its task.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use super::connection::Connection;
use super::cookies::CookieJar;
use super::request::RequestBuffer;
use super::setup::Standing;

/// Why a request was taken away from its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancel {
    TimedOut,
    Abandoned,
}

/// Who sits on a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sitter {
    /// A closed-loop user by number.
    User(u32),
    /// A journey of an open loop.
    Arrival,
    /// One that arrives beside the phase's own load, by its index.
    Beside(usize),
}

impl Sitter {
    /// Whether it belongs to the phase's own load.
    pub(super) fn is_main(self) -> bool {
        !matches!(self, Self::Beside(_))
    }
}

/// The watched state of one journey at a time: at most one request in flight.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) sitter: Cell<Sitter>,
    pub(super) busy_since: Cell<Option<Instant>>,
    /// End of the last stretch, when the next one has not begun.
    pub(super) idle_since: Cell<Option<Instant>>,
    pub(super) deadline: Cell<Option<Instant>>,
    /// Whether the request in flight belongs to the phase under way.
    pub(super) is_counted: Cell<bool>,
    pub(super) cancelled: Cell<Option<Cancel>>,
    waker: RefCell<Option<Waker>>,
}

impl Slot {
    /// A slot with nothing in flight.
    pub(super) fn new(sitter: Sitter) -> Self {
        Self {
            sitter: Cell::new(sitter),
            busy_since: Cell::new(None),
            idle_since: Cell::new(None),
            deadline: Cell::new(None),
            is_counted: Cell::new(false),
            cancelled: Cell::new(None),
            waker: RefCell::new(None),
        }
    }

    /// Runs a future until it is done or the slot's request is cancelled.
    pub(super) async fn guard<F: Future + Unpin>(
        &self,
        mut future: F,
    ) -> Result<F::Output, Cancel> {
        std::future::poll_fn(|cx| {
            if let Some(cancel) = self.cancelled.take() {
                return Poll::Ready(Err(cancel));
            }
            let mut waker = self.waker.borrow_mut();
            if !waker
                .as_ref()
                .is_some_and(|known| known.will_wake(cx.waker()))
            {
                *waker = Some(cx.waker().clone());
            }
            drop(waker);
            Pin::new(&mut future).poll(cx).map(Ok)
        })
        .await
    }

    /// Takes the request away from the task that awaits it.
    pub(super) fn cancel(&self, cancel: Cancel) {
        self.cancelled.set(Some(cancel));
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// A place for one journey at a time: a connection and its slot.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) connection: Option<Connection>,
    /// Where its requests are built.
    pub(super) buffer: RequestBuffer,
    /// Where its user's cookies are, if cookies are kept.
    pub(super) jar: Option<Box<CookieJar>>,
    /// Which of the target's addresses it connects to, for as long as the seat lives.
    pub(super) address: usize,
    pub(super) slot: Rc<Slot>,
    /// What `${user}` is.
    pub(super) user: u32,
    pub(super) id: u32,
    /// Its rows of data files, by data set; empty where there are none.
    pub(super) rows: Vec<usize>,
    /// What its user has set up.
    pub(super) standing: Standing,
}

impl Seat {
    /// Seats a user; of the one before nothing is left.
    pub(super) fn seat(&mut self, user: u32, keeps_cookies: bool) {
        match &mut self.jar {
            Some(jar) if user != self.user => jar.clear(),
            None if keeps_cookies => self.jar = Some(Box::default()),
            _ => {}
        }
        self.user = user;
    }
}
