//! Much at once: answers that may not change hands, slow neighbours, deadlines.

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod deadlines;
    mod mix_up;
    mod rough_use;
    mod rough_use_of_postgres;
    mod slow_neighbours;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod deadlines;
    mod mix_up;
    mod rough_use;
    mod slow_neighbours;
}
