//! Whether the service's answers are right, asked before a cell is measured: a fast wrong answer is worth
//! nothing.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::cli::Route;
use crate::http::{Answer, Client};
use crate::store::{WORLDS, World};

/// The table's content, read by another way than the service's.
pub(super) struct Truth(HashMap<i64, i64>);

impl Truth {
    pub(super) fn new(worlds: Vec<World>) -> Result<Self> {
        let worlds = worlds.into_iter().filter(|world| (1..=WORLDS).contains(&world.id));
        let worlds: HashMap<i64, i64> =
            worlds.map(|world| (world.id.into(), world.random_number.into())).collect();
        ensure!(worlds.len() == WORLDS as usize, "the table `world` has not all of its {WORLDS} rows");
        Ok(Self(worlds))
    }

    /// Asks each route a few times what the load will ask it.
    pub(super) async fn check(&self, client: &mut Client, route: &Route) -> Result<()> {
        match route {
            Route::Json => check_json(&client.get("/json").await?),
            Route::Db => {
                for _ in 0..5 {
                    self.world(&value(&client.get("/db").await?)?)?;
                }
                Ok(())
            }
            Route::Queries { n, path } => {
                let n = usize::from(*n);
                let bounds =
                    [("/queries", 1), ("/queries?n=foo", 1), ("/queries?n=0", 1), ("/queries?n=501", 500)];
                for (path, rows) in [(path.as_str(), n)].into_iter().chain(bounds) {
                    self.worlds(&client.get(path).await?, rows)
                        .with_context(|| format!("{path} is wrong"))?;
                }
                Ok(())
            }
        }
        .with_context(|| format!("{} does not answer as it must", route.path()))
    }

    fn worlds(&self, answer: &Answer, rows: usize) -> Result<()> {
        let value = value(answer)?;
        let Value::Array(worlds) = &value else { bail!("an array was expected, not {value}") };
        ensure!(worlds.len() == rows, "{rows} rows were expected, not {}", worlds.len());
        worlds.iter().try_for_each(|world| self.world(world))
    }

    fn world(&self, world: &Value) -> Result<()> {
        let keys = world.as_object().map_or(0, serde_json::Map::len);
        let (id, number) = (world["id"].as_i64(), world["randomNumber"].as_i64());
        ensure!(keys == 2 && id.is_some() && number.is_some(), "a row was expected, not {world}");
        let known = id.and_then(|id| self.0.get(&id));
        ensure!(known.is_some(), "no such row in the table: {world}");
        ensure!(known == number.as_ref(), "the table has another number: {world}");
        Ok(())
    }
}

fn check_json(answer: &Answer) -> Result<()> {
    value(answer)?;
    ensure!(answer.body == br#"{"message":"Hello, World!"}"#, "the body is {}", answer.text());
    Ok(())
}

fn value(answer: &Answer) -> Result<Value> {
    ensure!(answer.status == 200, "status {}: {}", answer.status, answer.text());
    ensure!(answer.content_type.starts_with("application/json"), "content type {:?}", answer.content_type);
    serde_json::from_slice(&answer.body).with_context(|| format!("no JSON: {}", answer.text()))
}

#[cfg(test)]
mod tests {
    use super::{Truth, check_json};
    use crate::http::Answer;
    use crate::store::{WORLDS, World};

    fn truth() -> Truth {
        let worlds = (1..=WORLDS).map(|id| World { id, random_number: id + 1 });
        Truth::new(worlds.collect()).expect("all rows are there")
    }

    fn answer(body: &str) -> Answer {
        Answer { status: 200, content_type: "application/json".to_owned(), body: body.as_bytes().to_vec() }
    }

    #[test]
    fn rows_must_be_those_of_the_table() {
        let truth = truth();
        let good = r#"[{"id":1,"randomNumber":2},{"id":10000,"randomNumber":10001}]"#;
        assert!(truth.worlds(&answer(good), 2).is_ok());
        for wrong in [
            r#"[{"id":1,"randomNumber":2}]"#,
            r#"[{"id":1,"randomNumber":2},{"id":0,"randomNumber":1}]"#,
            r#"[{"id":1,"randomNumber":2},{"id":3,"randomNumber":2}]"#,
            r#"[{"id":1,"randomNumber":2},{"id":2,"randomnumber":3}]"#,
            r#"[{"id":1,"randomNumber":2},{"id":2,"randomNumber":3,"more":0}]"#,
            r#"{"id":1,"randomNumber":2}"#,
            "no",
        ] {
            assert!(truth.worlds(&answer(wrong), 2).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_page_is_no_answer() {
        let refused = Answer { status: 503, ..answer(r#"{"message":"Hello, World!"}"#) };
        assert!(check_json(&refused).is_err());
        assert!(check_json(&answer(r#"{"message":"Hello, World!"}"#)).is_ok());
        assert!(check_json(&answer(r#"{"message":"Hello"}"#)).is_err());
    }

    #[test]
    fn a_table_with_gaps_is_refused() {
        assert!(Truth::new(vec![World { id: 1, random_number: 1 }]).is_err());
    }
}
