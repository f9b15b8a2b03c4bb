//! One operation of the REST: its description and its handler.

use axum::Router;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::limits::BodyMax;
use super::problem::Kind;

/// The description of an operation.
#[derive(Clone, Debug)]
pub(super) struct Description {
    /// The method, in small letters as OpenAPI has it.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// The operation id, for generated clients.
    pub id: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Description.
    pub details: &'static str,
    /// Parameters of path and query.
    pub parameters: Vec<Parameter>,
    /// The request body.
    pub body: Option<Body>,
    /// The successful answer.
    pub answer: Answer,
    /// Another answer that is not a problem.
    pub otherwise: Option<Answer>,
    /// Possible problems.
    pub problems: Vec<Kind>,
    /// Whether a token is required.
    pub is_guarded: bool,
    /// Whether rate, concurrency and time are limited. Probes are not.
    pub is_bounded: bool,
}

/// Writes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A request body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// Allowed content.
    pub schema: SchemaOf,
    /// Largest size, in bytes.
    pub max: usize,
}

/// A parameter of path or query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `path` or `query`.
    pub place: &'static str,
    /// Description for users.
    pub description: &'static str,
    /// Allowed content.
    pub schema: SchemaOf,
}

/// A successful answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Its status.
    pub status: u16,
    /// Its description.
    pub description: &'static str,
    /// Its body.
    pub schema: SchemaOf,
}

/// An operation with its handler.
pub(super) struct Operation<S> {
    /// Its description.
    pub description: Description,
    /// Its handler.
    pub route: MethodRouter<S>,
}

impl<S: Clone + Send + Sync + 'static> Operation<S> {
    /// A read with the answer `T`.
    pub(super) fn get<T: JsonSchema>(
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        route: MethodRouter<S>,
    ) -> Self {
        let answer = Answer {
            status: 200,
            description: summary,
            schema: schema_of::<T>,
        };
        Self {
            description: Description {
                method: "get",
                path,
                id,
                summary,
                details: "",
                parameters: Vec::new(),
                body: None,
                answer,
                otherwise: None,
                problems: vec![Kind::TooMany, Kind::Unavailable, Kind::Late],
                is_guarded: false,
                is_bounded: true,
            },
            route,
        }
    }

    /// Changes the description.
    #[must_use]
    pub(super) fn with(mut self, change: impl FnOnce(&mut Description)) -> Self {
        change(&mut self.description);
        self
    }

    /// Requires a token.
    #[must_use]
    pub(super) fn guarded(self) -> Self {
        self.with(|what| {
            what.is_guarded = true;
            what.problems
                .extend([Kind::Unauthenticated, Kind::Forbidden]);
        })
    }

    /// Removes the limits.
    #[must_use]
    pub(super) fn unbounded(self) -> Self {
        self.with(|what| {
            what.is_bounded = false;
            what.problems.clear();
        })
    }
}

/// The routes of these operations. `bound` adds the limits.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(
    operations: Vec<Operation<S>>,
    bound: impl FnOnce(Router<S>, BodyMax) -> Router<S>,
) -> Router<S> {
    let (mut bounded, mut others) = (Router::new(), Router::new());
    let described = operations.iter().map(|one| &one.description);
    let bodies = described.filter_map(|what| Some((what.path, what.body?.max)));
    let bodies = bodies.collect();
    for Operation { description, route } in operations {
        if description.is_bounded {
            bounded = bounded.route(description.path, route);
        } else {
            others = others.route(description.path, route);
        }
    }
    bound(bounded, bodies).merge(others)
}

/// The schema of `T`.
pub(super) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
