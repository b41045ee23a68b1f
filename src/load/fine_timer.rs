//! Sleeping to the microsecond on a load thread, without burning CPU.
//!
//! tokio's timer rounds up to whole milliseconds, which would be added to every
//! open-loop latency; and while it runs, the event loop reads the clock twice and sets a
//! kernel timer each time it waits, which shows in what a plain request costs. So the
//! runtime of a load thread has no timer, and one timerfd wakes the event loop at the
//! earliest of all awaited moments instead.
//!
//! **Invariant**: a sleep never ends before its moment.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The timer of one load thread.
#[derive(Debug)]
pub(super) struct FineTimer {
    fd: AsyncFd<OwnedFd>,
    waiting: RefCell<Waiting>,
    armed: Cell<Option<Instant>>,
}

/// Sleepers by moment; the number keeps the order of equals and names the waker.
#[derive(Debug, Default)]
struct Waiting {
    moments: BinaryHeap<Reverse<(Instant, u64)>>,
    wakers: std::collections::HashMap<u64, Waker>,
    next_id: u64,
}

/// So many moments are kept at least, awaited or not. More than that are kept only while at
/// least half of them are awaited.
const MOMENTS_KEPT: usize = 64;

impl Waiting {
    /// The earliest moment that somebody still awaits.
    fn earliest(&mut self) -> Option<Instant> {
        while let Some(Reverse((moment, id))) = self.moments.peek() {
            if self.wakers.contains_key(id) {
                return Some(*moment);
            }
            self.moments.pop();
        }
        None
    }

    /// Nobody awaits it any more: a limit that was not reached, mostly.
    fn forget(&mut self, id: u64) {
        let Self {
            moments, wakers, ..
        } = self;
        wakers.remove(&id);
        if moments.len() > MOMENTS_KEPT && moments.len() > 2 * wakers.len() {
            moments.retain(|Reverse((_, id))| wakers.contains_key(id));
        }
    }
}

impl FineTimer {
    /// A timer of the current runtime.
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        #[expect(
            deprecated,
            reason = "the safe constructor; its fault needs a descriptor that closes early, \
                      which an OwnedFd cannot, and the replacement is unsafe code"
        )]
        let fd = AsyncFd::new(fd)?;
        Ok(Self {
            fd,
            waiting: RefCell::default(),
            armed: Cell::new(None),
        })
    }

    /// Waits for a moment; ready at once when it is past.
    pub(super) fn sleep_until(self: &Rc<Self>, moment: Instant) -> Sleep {
        Sleep {
            timer: Rc::clone(self),
            moment,
            id: None,
        }
    }

    /// Wakes sleepers for ever. The thread's first task runs this beside its own work.
    pub(super) async fn run(&self) -> io::Result<()> {
        loop {
            // The expiry count is not read: the event is edge-triggered, and
            // setting the timer anew resets it.
            self.fd.readable().await?.clear_ready();
            self.armed.set(None);
            self.wake_due(Instant::now());
            self.arm()?;
        }
    }

    fn wake_due(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(Reverse((moment, id))) = waiting.moments.peek().copied() {
            if moment > now {
                break;
            }
            waiting.moments.pop();
            if let Some(waker) = waiting.wakers.remove(&id) {
                waker.wake();
            }
        }
    }

    /// Sets the timer to the earliest moment, if it is not set so already.
    fn arm(&self) -> io::Result<()> {
        let Some(earliest) = self.waiting.borrow_mut().earliest() else {
            return Ok(());
        };
        if self.armed.get().is_some_and(|armed| armed <= earliest) {
            return Ok(());
        }
        // Zero would disarm it; a past moment is due in a nanosecond.
        let delay = earliest
            .saturating_duration_since(Instant::now())
            .max(Duration::from_nanos(1));
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(delay).map_err(io::Error::other)?,
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
        self.armed.set(Some(earliest));
        Ok(())
    }
}

/// What times waits outside a journey's requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waits<'a> {
    /// A load thread's timer: its runtime has none.
    Fine(&'a Rc<FineTimer>),
    /// The runtime's own, to the millisecond.
    Runtime,
}

impl Waits<'_> {
    /// Waits so long.
    pub(super) async fn sleep(self, wait: Duration) {
        match self {
            Self::Fine(timer) => timer.sleep_until(Instant::now() + wait).await,
            Self::Runtime => tokio::time::sleep(wait).await,
        }
    }

    /// What a future gives, unless it takes longer; `None` then.
    pub(super) async fn within<T>(
        self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = self.sleep(limit) => None,
        }
    }
}

/// Ready at a moment.
#[derive(Debug)]
pub(super) struct Sleep {
    timer: Rc<FineTimer>,
    moment: Instant,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.moment {
            return Poll::Ready(());
        }
        let timer = Rc::clone(&self.timer);
        {
            let mut waiting = timer.waiting.borrow_mut();
            let id = self.id.unwrap_or_else(|| {
                let id = waiting.next_id;
                waiting.next_id += 1;
                waiting.moments.push(Reverse((self.moment, id)));
                id
            });
            waiting.wakers.insert(id, cx.waker().clone());
            self.id = Some(id);
        }
        // A timer that cannot be set would hang the load: the panic ends it with an error.
        timer.arm().expect("a timerfd that was made can be set");
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.timer.waiting.borrow_mut().forget(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a load thread's.
    fn runtime() -> tokio::runtime::LocalRuntime {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap()
    }

    #[test]
    fn sleepers_wake_in_order_and_never_early() {
        runtime().block_on(async {
            let timer = Rc::new(FineTimer::new().unwrap());
            let driver = Rc::clone(&timer);
            tokio::task::spawn_local(async move { driver.run().await });
            let start = Instant::now();
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [7_u64, 1, 4, 0, 4]
                .map(|ms| {
                    let (timer, order) = (Rc::clone(&timer), Rc::clone(&order));
                    tokio::task::spawn_local(async move {
                        let moment = start + Duration::from_micros(ms * 1_300);
                        timer.sleep_until(moment).await;
                        assert!(Instant::now() >= moment);
                        order.borrow_mut().push(ms);
                    })
                })
                .into_iter()
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.borrow(), [0, 1, 4, 4, 7]);
        });
    }

    #[test]
    fn limits_that_were_not_reached_are_forgotten() {
        runtime().block_on(async {
            let timer = Rc::new(FineTimer::new().unwrap());
            let waits = Waits::Fine(&timer);
            for _ in 0..1_000 {
                let mut is_new = true;
                let soon = std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if std::mem::take(&mut is_new) {
                        Poll::Pending
                    } else {
                        Poll::Ready(7)
                    }
                });
                assert_eq!(waits.within(Duration::from_secs(30), soon).await, Some(7));
            }
            assert!(timer.waiting.borrow().moments.len() <= MOMENTS_KEPT + 1);
            assert_eq!(timer.waiting.borrow_mut().earliest(), None);
            let driver = Rc::clone(&timer);
            tokio::task::spawn_local(async move { driver.run().await });
            let never = std::future::pending::<()>();
            assert_eq!(waits.within(Duration::from_millis(5), never).await, None);
        });
    }
}
