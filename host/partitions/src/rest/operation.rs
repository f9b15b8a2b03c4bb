//! One thing that can be asked over REST: what it is to people and programs, and who answers it.

use axum::Router;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::limits::BodyMax;
use super::problem::Kind;

/// What a program needs to know to ask.
#[derive(Clone, Debug)]
pub(super) struct Description {
    /// The method, in small letters as OpenAPI has it.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// A name for programs that are made from the document.
    pub id: &'static str,
    /// One line.
    pub summary: &'static str,
    /// More, where there is more to say.
    pub details: &'static str,
    /// What may stand in the path and after `?`.
    pub parameters: Vec<Parameter>,
    /// The body that is sent.
    pub body: Option<Body>,
    /// The good answer.
    pub answer: Answer,
    /// An answer that is neither that nor a problem.
    pub otherwise: Option<Answer>,
    /// What else is answered.
    pub problems: Vec<Kind>,
    /// Whether a token is asked for.
    pub is_guarded: bool,
    /// Whether pace, concurrency and time are bounded. Probes are not.
    pub is_bounded: bool,
}

/// Writes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A body that is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// What it may be.
    pub schema: SchemaOf,
    /// How long it may be, in bytes.
    pub max: usize,
}

/// Something in the path or after `?`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `path` or `query`.
    pub place: &'static str,
    /// What it is.
    pub description: &'static str,
    /// What it may be.
    pub schema: SchemaOf,
}

/// A good answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Its status.
    pub status: u16,
    /// What it says.
    pub description: &'static str,
    /// Its body.
    pub schema: SchemaOf,
}

/// Something that can be asked, and who answers it.
pub(super) struct Operation<S> {
    /// What it is.
    pub description: Description,
    /// Who answers it.
    pub route: MethodRouter<S>,
}

impl<S: Clone + Send + Sync + 'static> Operation<S> {
    /// A read whose good answer is a `T`.
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

    /// Changes what it is.
    #[must_use]
    pub(super) fn with(mut self, change: impl FnOnce(&mut Description)) -> Self {
        change(&mut self.description);
        self
    }

    /// One that asks for a token.
    #[must_use]
    pub(super) fn guarded(self) -> Self {
        self.with(|what| {
            what.is_guarded = true;
            what.problems
                .extend([Kind::Unauthenticated, Kind::Forbidden]);
        })
    }

    /// One that is answered whatever else is asked.
    #[must_use]
    pub(super) fn unbounded(self) -> Self {
        self.with(|what| {
            what.is_bounded = false;
            what.problems.clear();
        })
    }
}

/// The routes of these operations; `bound` puts limits around those that are bounded.
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
