//! What must be known before a statement can be encoded or its rows decoded, and how it is asked for: parameter types,
//! and the types that a database defines for itself.

use std::sync::Arc;

use postgres_types::{Kind, Oid, Type};
use tokio::time::Instant;
use wire_pipeline::call;

use super::{Caller, Lane};
use crate::column::Column;
use crate::error::{Error, Fault, Outcome};
use crate::protocol::answer::Answer;
use crate::protocol::messages::Description;
use crate::protocol::request::Request;
use crate::statement::{Ask, Learned};
use crate::types;

/// How deep types are looked up inside of each other.
const TYPES_NEST: usize = 16;
/// How often a statement is asked for again when the connection is lost. It may be what ends the server.
const MOST_LOST: u8 = 2;

impl Caller<'_> {
    /// Makes sure that the parameter types are known.
    pub(super) async fn learn(self, learned: &Arc<Learned>, deadline: Instant) -> Result<(), Fault> {
        let mut asking = None;
        let mut lost = MOST_LOST;
        while learned.parameters().is_none() {
            // On a lease everybody asks for himself: there the order of requests is the caller's.
            if asking.is_none()
                && let Lane::Shared(pool) = self.lane
            {
                match learned.ask(Instant::now()) {
                    Ask::First(first) => asking = Some(first),
                    Ask::Wait { asked, until } => {
                        let asked = pool.until(until.min(deadline), asked).await.is_some();
                        if learned.parameters().is_some() {
                            return Ok(());
                        }
                        if !asked && Instant::now() >= deadline {
                            return Err(Fault::timeout(
                                crate::Phase::Queue,
                                Outcome::NotSent,
                                "timed out in phase queue: the statement was still being prepared for the first time",
                            ));
                        }
                        if !asked && Instant::now() >= until {
                            continue;
                        }
                        // Someone has asked, and that did not help: ask too, together with everybody else who waited.
                    }
                }
            }
            let oids = match self.lane.submit(Request::learn(Arc::clone(learned)), deadline).await {
                Ok(Answer::Learnt { parameters }) => parameters,
                Ok(_) => return Err(call::mixed_up()),
                // Nothing has run, so another connection may be asked.
                Err(error) if error.is_lost() && lost > 0 && self.lane.is_shared() => {
                    lost -= 1;
                    continue;
                }
                // Whether it was parsed is of no matter: the statement itself has not run.
                Err(error) if error.outcome() == Outcome::Unknown => {
                    let error = error.with_outcome(Outcome::NotSent);
                    return Err(error.context("while the statement's parameter types were asked for"));
                }
                Err(error) => return Err(error),
            };
            let mut types = Vec::with_capacity(oids.len());
            let caller = Caller { has_turn: true, ..self };
            for oid in oids {
                types.push(caller.look_up_type(oid, TYPES_NEST).await);
            }
            learned.learn(types.into());
        }
        drop(asking);
        Ok(())
    }

    /// A statement's columns with their types; types of the database's own are looked up when first met.
    pub(super) async fn columns(self, description: &Description) -> Result<Arc<[Column]>, Fault> {
        loop {
            if let Some(columns) = description.columns.get() {
                return Ok(Arc::clone(columns));
            }
            let Some(oid) = description.resolve(|oid| self.knowledge.types.get(oid)) else { continue };
            let found = self.look_up_type(oid, TYPES_NEST).await;
            if self.knowledge.types.get(oid).is_none() {
                // It cannot be had now (a failed transaction, no permission): these rows do without it.
                let known = |oid| self.knowledge.types.get(oid).unwrap_or_else(|| types::unknown(oid));
                drop(found);
                return Ok(description
                    .fields
                    .iter()
                    .map(|field| Column::new(field.name.clone(), known(field.type_oid)))
                    .collect());
            }
        }
    }

    /// A type by its number. What cannot be looked up is of unknown kind, and is asked for again next time.
    async fn look_up_type(self, oid: Oid, depth: usize) -> Type {
        if let Some(known) = self.knowledge.types.get(oid) {
            return known;
        }
        // Types nest: an array of a domain over a composite. A server that makes a circle of them gets no further.
        let Some(depth) = depth.checked_sub(1) else { return types::unknown(oid) };
        match Box::pin(self.ask_for_type(oid, depth)).await {
            Ok(Some(found)) => {
                self.knowledge.types.insert(&found);
                found
            }
            Ok(None) | Err(_) => types::unknown(oid),
        }
    }

    async fn ask_for_type(self, oid: Oid, depth: usize) -> Result<Option<Type>, Error> {
        type Found = (String, i8, Oid, Option<Oid>, Oid, String, Oid);
        let found: Option<Found> = self.query_opt(types::LOOK_UP, (oid,)).await?;
        let Some((name, category, element, range, base, schema, relation)) = found else { return Ok(None) };
        let kind = match category.cast_unsigned() {
            b'e' => Kind::Enum(
                self.query::<(String,)>(types::LOOK_UP_LABELS, (oid,))
                    .await?
                    .into_iter()
                    .map(|(label,)| label)
                    .collect(),
            ),
            b'p' => Kind::Pseudo,
            _ if base != 0 => Kind::Domain(self.look_up_type(base, depth).await),
            _ if element != 0 => Kind::Array(self.look_up_type(element, depth).await),
            _ if relation != 0 => {
                let mut fields = Vec::new();
                for (name, r#type) in self.query::<(String, Oid)>(types::LOOK_UP_FIELDS, (relation,)).await? {
                    fields.push(postgres_types::Field::new(name, self.look_up_type(r#type, depth).await));
                }
                Kind::Composite(fields)
            }
            _ => match range {
                Some(element) if category.cast_unsigned() == b'm' => {
                    Kind::Multirange(self.look_up_type(element, depth).await)
                }
                Some(element) => Kind::Range(self.look_up_type(element, depth).await),
                None => Kind::Simple,
            },
        };
        Ok(Some(Type::new(name, oid, kind, schema)))
    }
}
