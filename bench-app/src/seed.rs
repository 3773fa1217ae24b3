//! `seed`: creates and fills the table that the routes read.

use anyhow::{Context as _, Result};

use crate::cli::SeedOptions;
use crate::store::{self, WORLDS};

pub(crate) async fn run(options: &SeedOptions) -> Result<()> {
    store::seed(&options.url).await.context("the table `world` cannot be filled")?;
    println!("table world: {WORLDS} rows");
    Ok(())
}
