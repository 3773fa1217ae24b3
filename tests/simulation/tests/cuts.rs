//! A connection that breaks at every byte of a dialogue, in each direction and in every way.

use std::sync::Arc;
use std::time::Duration;

use simulation::account::Account;
use simulation::client::{Ask, Database, MySql, Postgres};
use simulation::dice::Dice;
use simulation::link::{Break, Direction, Fate};
use simulation::log::Log;
use simulation::run::{Report, heal, in_virtual_time, no_task_is_left, rest, run_all};
use simulation::server::{Server, Temper};
use simulation::text::{Args, Owner};
use simulation::weather::{Features, Network, Settings, Weather};
use simulation::world::World;

const WAYS: [Break; 5] = [Break::Reset, Break::LateReset, Break::End, Break::Stall(700), Break::Swallow];

/// A read, two writes at once, a transaction, a batch and a session, on connections of which each ends like this.
async fn dialogue<D: Database>(fate: Fate, log: Arc<Log>, sent: &mut Vec<(usize, usize)>) -> u64 {
    let server = Server::new(&log, Dice::new(1, 2), Temper::default());
    let network = Network::new(&server, 1, Weather::CALM);
    network.foretell(vec![fate; 3]);
    let account = Account::new(&log);
    let settings = Settings { query_timeout: Duration::from_millis(400), ..Settings::roomy(1) };
    let pool = D::start(&network, &settings);
    let world = World::<D> {
        pool: pool.clone(),
        settings,
        features: Features::PLAIN,
        account: Arc::clone(&account),
        server: Arc::clone(&server),
        holders: Arc::default(),
        log: Arc::clone(&log),
    };
    let ask = |owner: i64, writes: bool, variant: i64| Ask {
        args: Args { id: account.number(), owner, work: 0, size: if writes { 0 } else { 40 } },
        variant,
        writes,
        timeout: None,
        idempotent: false,
        bulk: 0,
    };

    let read = ask(0, false, 1);
    account.told(read, true, Some(D::on_pool(&pool, read).await));
    let (one, two) = (ask(0, true, 2), ask(0, true, 2));
    let (first, second) = tokio::join!(D::on_pool(&pool, one), D::on_pool(&pool, two));
    account.told(one, true, Some(first));
    account.told(two, true, Some(second));

    let owner = Owner::Transaction.number(account.number());
    if let Ok(transaction) = D::begin(&pool).await {
        let asks = [ask(owner, true, 2), ask(owner, false, 3), ask(owner, true, 4)];
        let (first, second, third) = tokio::join!(
            D::in_transaction(&transaction, asks[0]),
            D::in_transaction(&transaction, asks[1]),
            D::in_transaction(&transaction, asks[2])
        );
        for (ask, told) in asks.into_iter().zip([first, second, third]) {
            account.told(ask, true, Some(told));
        }
        account.concluded(owner, Some(D::commit(transaction).await));
    }

    let owner = Owner::Batch.number(account.number());
    let asks = [ask(owner, true, 2), ask(owner, true, 4)];
    let result = D::batch(&pool, &asks).await;
    for ask in asks {
        account.told(ask, true, Some(result.clone().map(|()| true)));
    }
    account.concluded(owner, Some(result));

    let owner = Owner::Session.number(account.number());
    if let Ok(session) = D::session(&pool).await {
        let _ = D::script(&session, &format!("SET marker = {owner}")).await;
        let write = ask(owner, true, 5);
        account.told(write, true, Some(D::on_session(&session, write).await));
    }

    sent.extend(network.sent());
    network.clear_up();
    heal(&world).await;
    rest(&world, false).await;
    drop((pool, world));
    no_task_is_left(&log).await;
    account.settle(&server);
    account.fine()
}

fn one<D: Database>(fate: Fate) -> Report {
    in_virtual_time(false, |log| async move { dialogue::<D>(fate, log, &mut Vec::new()).await })
}

/// The most bytes that one connection carries, up and down, when nothing breaks.
fn lengths<D: Database>() -> (usize, usize) {
    let mut sent = Vec::new();
    let report = in_virtual_time(false, |log| dialogue::<D>(Fate::CALM, log, &mut sent));
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    // Everything but the session's script is counted.
    assert_eq!(report.fine, 9, "{}", D::NAME);
    let most = |pick: fn(&(usize, usize)) -> usize| sent.iter().map(pick).max().unwrap_or(0);
    (most(|(up, _)| *up), most(|(_, down)| *down))
}

fn cut_everywhere<D: Database>() {
    let (up, down) = lengths::<D>();
    assert!(up > 500 && down > 500, "{}: {up} up, {down} down", D::NAME);
    let places: Vec<(Direction, usize, Break)> = [(Direction::Up, up), (Direction::Down, down)]
        .into_iter()
        .flat_map(|(direction, length)| (0..=length).map(move |at| (direction, at)))
        .flat_map(|(direction, at)| WAYS.into_iter().map(move |way| (direction, at, way)))
        .collect();
    let (sum, broken) = run_all(0..places.len() as u64, |place| {
        let fate = Fate { breaks: Some(places[place as usize]), ..Fate::CALM };
        vec![(D::NAME, one::<D>(fate))]
    });
    println!("{}: {} cuts", D::NAME, sum.runs);
    for (name, place, violations) in &broken {
        println!("{name} {:?}: {violations:#?}", places[*place as usize]);
    }
    assert!(broken.is_empty(), "{} cuts break rules", broken.len());
}

#[test]
fn postgres_is_cut_at_every_byte() {
    cut_everywhere::<Postgres>();
}

#[test]
fn mysql_is_cut_at_every_byte() {
    cut_everywhere::<MySql>();
}
