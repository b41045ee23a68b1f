//! The order of cells in a block: our own generator, stable for ever.
//!
//! A published run names its seed; whoever repeats it years later with another
//! version must get the same order. So neither the generator nor the shuffle
//! comes from a library that may improve.

/// **Source**: Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, OOPSLA 2014; constants of the public-domain splitmix64.c.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, every one equally likely.
    ///
    /// Draws from the last, incomplete stretch of `bound` numbers are thrown away.
    fn below(&mut self, bound: u64) -> u64 {
        let usable = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.next();
            if drawn < usable {
                return drawn % bound;
            }
        }
    }
}

/// The order of `n_cells` cells in a block, by seed and block.
///
/// **Source**: Durstenfeld's form of the Fisher-Yates shuffle, from the last
/// place down. The generator of a block starts at the output number `block` of
/// one that starts at the seed, so blocks do not depend on each other's length.
pub(super) fn shuffled(n_cells: usize, seed: u64, block: u32) -> Vec<usize> {
    let mut seeds = SplitMix64(seed);
    let mut start = 0;
    for _ in 0..block {
        start = seeds.next();
    }
    let mut random = SplitMix64(start);
    let mut order: Vec<usize> = (0..n_cells).collect();
    for last in (1..n_cells).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).expect("not above an index");
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_generator_gives_the_published_sequence() {
        // First outputs for seed 1234567, as printed by splitmix64.c.
        let mut random = SplitMix64(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn seed_and_block_fix_the_order_for_ever() {
        // Pinned: changing these breaks the repetition of published runs.
        assert_eq!(shuffled(8, 1, 1), PINNED[0]);
        assert_eq!(shuffled(8, 1, 2), PINNED[1]);
        assert_eq!(shuffled(8, 2, 1), PINNED[2]);
    }

    /// Computed by a second implementation of the same description.
    const PINNED: [[usize; 8]; 3] = [
        [0, 5, 2, 7, 3, 4, 1, 6],
        [5, 7, 3, 1, 6, 4, 2, 0],
        [1, 2, 5, 0, 3, 7, 6, 4],
    ];

    #[test]
    fn every_cell_comes_first_about_equally_often() {
        let mut first = [0_u32; 5];
        for seed in 0..5_000 {
            first[shuffled(5, seed, 1)[0]] += 1;
        }
        // 1,000 each; five standard deviations are 141.
        for (cell, count) in first.iter().enumerate() {
            assert!((859..=1_141).contains(count), "cell {cell} first {count}");
        }
    }

    proptest! {
        #[test]
        fn a_block_holds_every_cell_once(n_cells in 0_usize..200, seed: u64, block in 1_u32..50) {
            let mut order = shuffled(n_cells, seed, block);
            order.sort_unstable();
            prop_assert_eq!(order, (0..n_cells).collect::<Vec<_>>());
        }
    }
}
