//! The pool of web threads: a fixed number of threads behind a bounded queue.
//!
//! Invariant: every job runs on one of exactly `n_threads` threads named `web-N`; a job
//! that finds the queue full is given back at once, never waited for. The pool knows
//! nothing of HTTP. Next: [`crate::routes`], whose work runs here.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::{fmt, io, thread};

type Job = Box<dyn FnOnce() + Send>;

/// The threads and their queue. They live as long as the process.
pub(crate) struct WebPool {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<VecDeque<Job>>,
    has_job: Condvar,
    capacity: usize,
    n_threads: AtomicUsize,
    n_busy: AtomicUsize,
}

/// The queue holds as many jobs as it may.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub(crate) struct QueueFull;

/// What the pool is doing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WebGauges {
    /// Threads that exist.
    pub(crate) threads: usize,
    /// Threads with a job.
    pub(crate) busy: usize,
    /// Jobs waiting.
    pub(crate) queued: usize,
    /// Jobs that may wait.
    pub(crate) capacity: usize,
}

impl fmt::Debug for WebPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebPool").field(&self.gauges()).finish()
    }
}

impl WebPool {
    /// Starts all threads. **Errors**: the system refused one.
    pub(crate) fn start(n_threads: usize, capacity: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(VecDeque::with_capacity(capacity.min(4096))),
            has_job: Condvar::new(),
            capacity,
            n_threads: AtomicUsize::new(0),
            n_busy: AtomicUsize::new(0),
        });
        for index in 0..n_threads {
            let for_thread = Arc::clone(&shared);
            thread::Builder::new()
                .name(format!("web-{index}"))
                .spawn(move || for_thread.work())?;
            shared.n_threads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Self { shared })
    }

    /// Queues a job, or says at once that there is no room.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), QueueFull> {
        {
            let mut queue = self.shared.lock();
            if queue.len() >= self.shared.capacity {
                return Err(QueueFull);
            }
            queue.push_back(Box::new(job));
        }
        self.shared.has_job.notify_one();
        Ok(())
    }

    /// The state at this moment.
    pub(crate) fn gauges(&self) -> WebGauges {
        WebGauges {
            threads: self.shared.n_threads.load(Ordering::Relaxed),
            busy: self.shared.n_busy.load(Ordering::Relaxed),
            queued: self.shared.lock().len(),
            capacity: self.shared.capacity,
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Job>> {
        // No job runs under the lock, so a poisoned queue is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let job = {
                let mut queue = self.lock();
                loop {
                    if let Some(job) = queue.pop_front() {
                        // Counted under the lock: a job is always either queued or busy.
                        self.n_busy.fetch_add(1, Ordering::Relaxed);
                        break job;
                    }
                    queue = self
                        .has_job
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            // A panic costs its own request, not a thread of the pool: the job's reply
            // channel closes, and the asynchronous side answers 500.
            let _ = catch_unwind(AssertUnwindSafe(job));
            self.n_busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A pool of `n` threads, all held by jobs that end when the sender is dropped.
    fn held(n: usize, capacity: usize) -> (WebPool, mpsc::Sender<()>) {
        let pool = WebPool::start(n, capacity).unwrap();
        let (hold, until_dropped) = mpsc::channel::<()>();
        let until_dropped = Arc::new(Mutex::new(until_dropped));
        let (entered, has_entered) = mpsc::channel();
        for _ in 0..n {
            let (wait, enter) = (Arc::clone(&until_dropped), entered.clone());
            pool.submit(move || {
                enter.send(()).unwrap();
                let _ = wait.lock().unwrap().recv();
            })
            .unwrap();
            has_entered.recv().unwrap();
        }
        (pool, hold)
    }

    #[test]
    fn a_full_queue_refuses_at_once() {
        let (pool, hold) = held(2, 3);
        for _ in 0..3 {
            pool.submit(|| {}).unwrap();
        }
        assert_eq!(pool.submit(|| {}), Err(QueueFull));
        assert_eq!(
            pool.gauges(),
            WebGauges {
                threads: 2,
                busy: 2,
                queued: 3,
                capacity: 3
            }
        );
        drop(hold);
    }

    #[test]
    fn a_panicking_job_does_not_cost_a_thread() {
        let pool = WebPool::start(1, 8).unwrap();
        pool.submit(|| panic!("on purpose")).unwrap();
        let (done, is_done) = mpsc::channel();
        pool.submit(move || {
            done.send(thread::current().name().map(str::to_owned))
                .unwrap();
        })
        .unwrap();
        assert_eq!(is_done.recv().unwrap().as_deref(), Some("web-0"));
        assert_eq!(pool.gauges().threads, 1);
    }
}
