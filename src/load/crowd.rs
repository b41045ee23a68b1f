//! For tests: neighbours that leave a generator no CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pinning::pin_this_thread;
use crate::cpus::CpuSet;

/// Threads that use one CPU up for as long as they live.
pub(super) struct Crowd {
    is_over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Crowd {
    /// So many of them.
    pub(super) fn on(cpu: &CpuSet, n_threads: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let busy = || {
            let (is_over, cpu) = (Arc::clone(&is_over), cpu.clone());
            std::thread::spawn(move || {
                pin_this_thread(&cpu).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..n_threads).map(|_| busy()).collect();
        Self { is_over, threads }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
