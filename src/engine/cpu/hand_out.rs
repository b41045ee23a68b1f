//! Handing cores out: whole ones first, from one end of the list or the other.

use crate::cpus::CpuSet;

/// Cores that have not been given to anybody.
#[derive(Debug, Clone)]
pub(super) struct Cores(Vec<CpuSet>);

impl Cores {
    /// All cores but what is taken already; of a core that is taken in part, the rest.
    pub(super) fn new(cores: &[CpuSet], taken: &CpuSet) -> Self {
        let free = cores.iter().map(|core| core.without(taken));
        Self(free.filter(|core| !core.is_empty()).collect())
    }

    /// Puts the cores that hold none of these CPUs last, in their order.
    pub(super) fn with_first(mut self, first: &CpuSet) -> Self {
        self.0.sort_by_key(|core| core.common(first).is_empty());
        self
    }

    /// CPUs that are still there.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(CpuSet::len).sum()
    }

    /// All of them as one set.
    pub(super) fn set(&self) -> CpuSet {
        joined(&self.0)
    }

    /// Takes so many whole cores from the end that they hold at least `n` CPUs, and leaves
    /// `rest` CPUs at least; `None`, and nothing taken, where that cannot be.
    pub(super) fn take_cores(&mut self, n: usize, rest: usize) -> Option<Vec<CpuSet>> {
        let mut n_taken = 0;
        let mut first = self.0.len();
        while n_taken < n {
            first = first.checked_sub(1)?;
            n_taken += self.0[first].len();
        }
        (self.len() - n_taken >= rest).then(|| self.0.split_off(first))
    }

    /// Takes exactly `n` CPUs from the end, a core apart where it must be.
    ///
    /// `None`, and nothing taken, where fewer than `n + rest` are left.
    pub(super) fn take_cpus(&mut self, n: usize, rest: usize) -> Option<Vec<CpuSet>> {
        if self.len() < n + rest {
            return None;
        }
        let mut taken = Vec::new();
        let mut missing = n;
        while missing > 0 {
            let core = self.0.pop()?;
            if core.len() <= missing {
                missing -= core.len();
                taken.push(core);
            } else {
                let part = last_of(&core, missing);
                self.0.push(core.without(&part));
                taken.push(part);
                missing = 0;
            }
        }
        taken.reverse();
        Some(taken)
    }

    /// Takes whole cores for `n` CPUs, those nearest to the end that lie in `among` alone.
    pub(super) fn take_among(&mut self, n: usize, among: &CpuSet, rest: usize) -> Option<CpuSet> {
        let mut taken = CpuSet::default();
        let mut left = self.0.clone();
        for index in (0..left.len()).rev() {
            if taken.len() >= n {
                break;
            }
            if left[index].without(among).is_empty() {
                taken = taken.joined(&left.remove(index));
            }
        }
        let n_left: usize = left.iter().map(CpuSet::len).sum();
        (taken.len() >= n && n_left >= rest).then(|| {
            self.0 = left;
            taken
        })
    }
}

/// The last `n` CPUs of a list of cores, whole cores first.
pub(super) fn last_cpus(cores: &[CpuSet], n: usize) -> Option<CpuSet> {
    let taken = Cores(cores.to_vec()).take_cpus(n, 0)?;
    Some(joined(&taken))
}

pub(super) fn joined(cores: &[CpuSet]) -> CpuSet {
    cores
        .iter()
        .fold(CpuSet::default(), |all, core| all.joined(core))
}

fn last_of(core: &CpuSet, n: usize) -> CpuSet {
    core.iter().rev().take(n).collect()
}
