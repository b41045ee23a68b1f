//! The one integration binary: linking once is what keeps the suite quick.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests may stop at the first surprise and read files plainly"
)]
#![allow(
    missing_docs,
    reason = "test modules document themselves by their tests' names"
)]

mod layering;
