//! The clients of a trial: who publishes, who subscribes, and who has a will.

use crate::judge;
use crate::mortal::Mortal;
use crate::publisher::Publisher;
use crate::retained;
use crate::subscriber::{Plan, Subscriber};
use crate::support::rng::Rng;
use crate::support::{Connect, Message, RawClient, V5, V311, now};
use crate::trial::{Class, MARKER, Pending, Series, Stamp, Trial};
use std::thread;
use std::time::Duration;

const PUBLISHERS: u64 = 6;
const SUBSCRIBERS: u64 = 7;
/// Durable sessions that one message goes out to, and that are mostly away.
const FLEET: u64 = 60;
/// A round ends after this, however few acknowledgements there were.
const LONGEST: Duration = Duration::from_millis(1_500);

pub struct Clients {
    pub publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
    pub mortals: Vec<Mortal>,
}

impl Clients {
    /// Returns clients whose plans the numbers draw.
    pub fn new(rng: &mut Rng) -> Clients {
        let version = |n: u64| if n.is_multiple_of(2) { V5 } else { V311 };
        let mut publishers = Vec::new();
        for n in 0..PUBLISHERS {
            let classes: &[Class] = match n {
                // One alone publishes to the fleet, so that a message is often under way to all of
                // it.
                0 => &[Class::Fleet],
                1 => &[Class::Retained, Class::Shared],
                _ => &[Class::Shared, Class::Changing],
            };
            publishers.push(Publisher::new(n, version(n), classes, Rng::new(rng.next())));
        }
        let mut subscribers = Vec::new();
        for n in 0..SUBSCRIBERS {
            let classes: &[Class] = if n < 3 { &[Class::Shared] } else { &[Class::Shared, Class::Changing] };
            let granted = if n == 2 { 1 } else { 2 };
            let subscriber = Subscriber::new(n, version(n), granted, classes, Rng::new(rng.next()));
            subscribers.push(if n == 4 { subscriber.starting_afresh_at_times() } else { subscriber });
        }
        for n in SUBSCRIBERS..SUBSCRIBERS + FLEET {
            let granted = 1 + (n % 2) as u8;
            subscribers.push(Subscriber::new(n, version(n), granted, &[Class::Fleet], Rng::new(rng.next())));
        }
        let mortals = (0..2).map(|n| Mortal::new(PUBLISHERS + n, version(n))).collect();
        Clients { publishers, subscribers, mortals }
    }

    /// Lets all clients loose on a broker until `end` says that they are through with it.
    pub fn run(&mut self, trial: &Trial, end: impl FnOnce()) -> Pending {
        let online = self.subscribers.iter().filter(|s| s.plan() != Plan::Away).count();
        trial.begin(self.publishers.len() + online + self.mortals.len());
        thread::scope(|scope| {
            let publishers: Vec<_> =
                self.publishers.iter_mut().map(|p| scope.spawn(|| p.run(trial))).collect();
            let subscribers: Vec<_> = self
                .subscribers
                .iter_mut()
                .filter(|s| s.plan() != Plan::Away)
                .map(|s| scope.spawn(|| s.run(trial)))
                .collect();
            let mortals: Vec<_> = self.mortals.iter_mut().map(|m| scope.spawn(|| m.run(trial))).collect();
            end();
            let all = publishers.into_iter().chain(subscribers).chain(mortals);
            let ended = all.map(|t| t.join().expect("a client"));
            ended.fold(Pending::default(), Pending::and)
        })
    }

    pub fn subscribe_the_fleet(&mut self, trial: &Trial) {
        for subscriber in &mut self.subscribers {
            let is_fleet = subscriber.classes() == [Class::Fleet];
            subscriber.set_plan(if is_fleet { Plan::SubscribeAndLeave } else { Plan::Away });
        }
        let others = (std::mem::take(&mut self.publishers), std::mem::take(&mut self.mortals));
        self.run(trial, || {});
        (self.publishers, self.mortals) = others;
    }

    pub fn draw_plans(&mut self) {
        self.publishers.iter_mut().for_each(Publisher::draw_plan);
        self.subscribers.iter_mut().for_each(Subscriber::draw_plan);
    }

    /// No more kills: what is promised has to come.
    pub fn finish(&mut self, trial: &Trial) {
        retained::check(trial, &self.publishers);
        self.publishers.iter_mut().for_each(Publisher::finish);
        self.mortals.iter_mut().for_each(Mortal::finish);
        self.subscribers.iter_mut().for_each(|s| s.set_plan(Plan::Drain));
        let began = now();
        let pending = self.run(trial, || {
            trial.wait_until_through();
            mark(trial);
        });
        println!("drained in {} ms", began.elapsed().as_millis());
        assert_eq!(pending.total(), 0, "unanswered at the end: {pending}");
        retained::check(trial, &self.publishers);
    }

    /// Compares what came with what was promised.
    pub fn judge(&self, trial: &Trial) {
        let published = self.publishers.iter().flat_map(|p| &p.fates).map(|(s, f)| (*s, f.as_slice()));
        let wills = self.mortals.iter().map(|m| (m.series(), m.fates.as_slice()));
        judge::record_violations(trial, &published.chain(wills).collect(), &self.subscribers);
    }

    /// Prints all that came to the sessions with which something was wrong.
    pub fn print_concerned(&self, trial: &Trial) {
        for subscriber in self.subscribers.iter().filter(|s| trial.concerns(&s.name())) {
            println!("all that came to {}:{}", subscriber.name(), subscriber.history());
        }
    }
}

/// Waits until `is_enough`, or for [`LONGEST`]. Then waits for `then`: the seed draws this time, so
/// that kills fall between any two steps of the broker.
pub fn await_moment_of_kill(is_enough: impl Fn() -> bool, then: Duration) {
    let deadline = now() + LONGEST;
    while !is_enough() && now() < deadline {
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(then);
}

/// Behind all else, to everybody.
fn mark(trial: &Trial) {
    let mut marker = RawClient::connect(trial.address(), &Connect::new(V5, "marker"));
    for class in [Class::Shared, Class::Fleet] {
        let series = Series { class, publisher: MARKER, qos: 2 };
        let message = Message::new(series.topic(), Stamp { series, number: 0 }.payload()).qos(2);
        assert!(marker.deliver(&message) < 0x80);
    }
}
