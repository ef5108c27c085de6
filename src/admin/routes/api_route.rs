//! A row of the table of routes: its handler, and the description of its parameters and answers.

use super::json_answer::JsonAnswer;
use super::openapi::body_schema::BodySchema;
use crate::admin::access::Scope;
use crate::admin::failed::Failed;
use crate::admin::operator::{NoteParameter, OperatorRequest};
use crate::admin::pages::page::PageResult;
use crate::admin::state::{AdminState, PublishSeat};
use actix_web::http::Method;
use actix_web::web::{Bytes, Data, Path, Query, ReqData, method};
use actix_web::{FromRequest, Handler, HttpRequest, HttpResponse, Responder, Route};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

/// The callers that a route admits. The request of anybody else ends before its handler.
#[derive(Clone, Copy)]
pub(super) enum RouteAdmission {
    /// Everybody. The handler may still ask for a token.
    Everybody,
    /// A caller with this scope at least: by a token, by the Unix socket, or by the login of a
    /// browser. The handler finds the caller as an `Asker`.
    Scope(Scope),
    /// A viewer, as above. The handler finds it as a `PageReader`, which knows when the login ends.
    Reader,
}

impl RouteAdmission {
    /// Returns the least scope; `None` for everybody.
    pub(super) const fn least(self) -> Option<Scope> {
        match self {
            RouteAdmission::Everybody => None,
            RouteAdmission::Scope(scope) => Some(scope),
            RouteAdmission::Reader => Some(Scope::Viewer),
        }
    }
}

/// One method of one path for programs.
pub(super) struct ApiRoute {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) who: RouteAdmission,
    /// Makes the route of the handler.
    pub(super) route: Box<dyn Fn() -> Route + Send + Sync>,
    pub(super) summary: &'static str,
    pub(super) takes: Taken,
    /// True if a node that stands by answers, too. Otherwise it names the owner.
    pub(super) on_standby: bool,
    /// The schema of the body of a request.
    pub(super) body: Option<BodySchema>,
    /// True if a reader of events can go on behind the last one, by the header `Last-Event-ID`.
    pub(super) is_resumed: bool,
    /// The answers other than errors. Without any, the answer is 204.
    pub(super) answers: Vec<RouteAnswer>,
    /// The errors that do not follow from the rest of the row.
    pub(super) refusals: &'static [u16],
}

/// An answer other than an error.
pub(super) struct RouteAnswer {
    pub(super) status: u16,
    pub(super) text: &'static str,
    pub(super) content: Content,
}

/// The body of an answer.
pub(super) enum Content {
    Json(BodySchema),
    /// Text of a content type.
    Text(&'static str),
    /// JSON whose form another standard says.
    Document,
}

/// The parts of a request that a handler reads beside its path.
#[derive(Default)]
pub(super) struct Taken {
    /// The parameters of the query, as a schema with a property for each. `None` without a query.
    pub(super) query: Option<Schema>,
    /// The schemas of the words that the parameters refer to.
    pub(super) words: Vec<(String, RefOr<Schema>)>,
    pub(super) has_body: bool,
}

/// A part of a request that a handler takes as an argument.
pub(super) trait Argument: FromRequest + 'static {
    /// Adds the parts that the argument reads.
    fn describe(_taken: &mut Taken) {}
}

impl Argument for HttpRequest {}
impl Argument for PublishSeat {}
impl Argument for Data<AdminState> {}
impl<T: 'static> Argument for Path<T> where Path<T>: FromRequest {}
impl<T: Clone + 'static> Argument for ReqData<T> {}

impl Argument for Bytes {
    fn describe(taken: &mut Taken) {
        taken.has_body = true;
    }
}

impl<T: ToSchema + 'static> Argument for Query<T>
where
    Query<T>: FromRequest,
{
    fn describe(taken: &mut Taken) {
        T::schemas(&mut taken.words);
        if let RefOr::T(schema) = T::schema() {
            taken.query = Some(schema);
        }
    }
}

impl<T: DeserializeOwned + ToSchema + 'static> Argument for OperatorRequest<T> {
    fn describe(taken: &mut Taken) {
        Query::<T>::describe(taken);
        if let (Some(Schema::Object(query)), RefOr::T(Schema::Object(note))) =
            (&mut taken.query, NoteParameter::schema())
        {
            query.properties.extend(note.properties);
        }
    }
}

/// The return type of a handler.
pub(super) trait Answered: Responder + 'static {
    /// Returns the schema of the answer 200, if its type says it.
    fn schema() -> Option<BodySchema> {
        None
    }
}

impl Answered for HttpResponse {}
impl Answered for Result<HttpResponse, Failed> {}
impl Answered for PageResult {}

impl<T: Serialize + ToSchema + 'static> Answered for JsonAnswer<T> {
    fn schema() -> Option<BodySchema> {
        Some(BodySchema::of_answer::<T>())
    }
}

/// The arguments of a handler, as a tuple.
pub(super) trait HandlerArguments: FromRequest + 'static {
    fn taken() -> Taken;
}

macro_rules! arguments {
    ($($argument:ident)*) => {
        impl<$($argument: Argument),*> HandlerArguments for ($($argument,)*) {
            fn taken() -> Taken {
                let mut taken = Taken::default();
                $($argument::describe(&mut taken);)*
                taken
            }
        }
    };
}

impl HandlerArguments for () {
    fn taken() -> Taken {
        Taken::default()
    }
}

arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);

fn row<F, A>(name: &'static str, path: &'static str, who: RouteAdmission, handler: F) -> ApiRoute
where
    F: Handler<A> + Send + Sync,
    F::Output: Answered,
    A: HandlerArguments,
{
    let verb = Method::from_bytes(name.as_bytes()).expect("the name of a method");
    let route = Box::new(move || method(verb.clone()).to(handler.clone()));
    let (takes, body, is_resumed, answers) = (A::taken(), None, false, Vec::new());
    let row = ApiRoute {
        method: name,
        path,
        who,
        route,
        summary: "",
        takes,
        on_standby: false,
        body,
        is_resumed,
        answers,
        refusals: &[],
    };
    match F::Output::schema() {
        None => row,
        Some(schema) => row.gives(200, "The answer.", Content::Json(schema)),
    }
}

macro_rules! verbs {
    ($($function:ident $name:literal)*) => {
        $(/// Returns the row of a handler.
        pub(super) fn $function<F, A>(
            path: &'static str,
            who: RouteAdmission,
            handler: F,
        ) -> ApiRoute
        where
            F: Handler<A> + Send + Sync,
            F::Output: Answered,
            A: HandlerArguments,
        {
            row($name, path, who, handler)
        })*
    };
}

verbs! { get "GET" put "PUT" post "POST" delete "DELETE" }

impl ApiRoute {
    /// Describes the effect of a request in one line.
    pub(super) fn says(self, summary: &'static str) -> ApiRoute {
        ApiRoute { summary, ..self }
    }

    /// Says that a node of a cluster that stands by answers, too.
    pub(super) fn on_standby(self) -> ApiRoute {
        ApiRoute { on_standby: true, ..self }
    }

    /// Adds an answer.
    pub(super) fn gives(mut self, status: u16, text: &'static str, content: Content) -> ApiRoute {
        self.answers.push(RouteAnswer { status, text, content });
        self
    }

    /// Says which type the body of a request is read as.
    pub(super) fn body<T: ToSchema>(self) -> ApiRoute {
        ApiRoute { body: Some(BodySchema::of_request::<T>()), ..self }
    }

    /// Says that the header `Last-Event-ID` is read.
    pub(super) fn resumes(self) -> ApiRoute {
        ApiRoute { is_resumed: true, ..self }
    }

    /// Names errors that do not follow from the rest of the row.
    pub(super) fn refuses(self, refusals: &'static [u16]) -> ApiRoute {
        ApiRoute { refusals, ..self }
    }
}
