//! The `nightsweep` binary: parses the command line and hands over to the library.

use std::process::ExitCode;

use clap::Parser;
use nightsweep::{app, cli};

fn main() -> ExitCode {
    app::main(cli::Cli::parse())
}
