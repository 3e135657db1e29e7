//! Makes the faults of a world.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_memory::{Data, Network};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::plan::{FaultKind, MS, Mode, SECOND, one, up_to};
use crate::world::World;

/// Makes faults until their time is over.
pub async fn run(world: Arc<World>) {
    let plan = &world.plan;
    let mut rng = Rng::with_seed(plan.seed.wrapping_mul(131).wrapping_add(7));
    let mut running = JoinSet::new();
    if plan.faults.is_empty() {
        return;
    }
    if plan.faults[0] == FaultKind::NoPlace {
        return lack_places(&world, plan.faults_end.mul_f64(rng.f64())).await;
    }
    loop {
        let pause = match plan.mode {
            Mode::Gentle if !plan.only_moves() => plan.lease + up_to(&mut rng, plan.lease),
            _ => up_to(&mut rng, 2 * plan.fault_pause),
        };
        sleep(pause).await;
        if world.now() >= plan.faults_end {
            break;
        }
        let kind = one(&mut rng, &plan.faults);
        let servers = world.servers.len();
        let (server, process) = (rng.usize(..servers), rng.usize(..plan.processes));
        let left = plan.faults_end - world.now();
        let time = (2 * MS).max(up_to(&mut rng, plan.longest_fault)).min(left);
        let age = up_to(&mut rng, 2 * SECOND);
        let fault = make(Arc::clone(&world), kind, server, process, time, age);
        match plan.mode {
            Mode::Gentle => fault.await,
            _ => drop(running.spawn(fault)),
        }
    }
    while running.join_next().await.is_some() {}
}

/// From the beginning on, the servers have no place for another connection.
async fn lack_places(world: &World, time: Duration) {
    let now = world.now();
    let number = world.oracle().begin_fault(now, Some(FaultKind::NoPlace), None, None);
    world.servers.iter().for_each(|server| server.limit_clients(Some(server.clients())));
    sleep(time).await;
    world.servers.iter().for_each(|server| server.limit_clients(None));
    let now = world.now();
    world.oracle().end_fault(now, number);
}

async fn make(
    world: Arc<World>,
    kind: FaultKind,
    server: usize,
    process: usize,
    time: Duration,
    age: Duration,
) {
    use FaultKind::*;
    let is_network = FaultKind::MESSAGES.contains(&kind)
        || matches!(kind, Hold | HoldRequests | HoldReplies | HoldExisting | Cut | CutLate | Refuse);
    let is_process = matches!(kind, StopProcess | KillProcess | Suspend);
    // One at a time for each target, as each ends what it began.
    let is_change = FaultKind::CHANGES.contains(&kind);
    let mut rng = Rng::with_seed(u64::try_from(age.as_nanos()).expect("years"));
    let name = server % world.plan.names;
    let server = match &world.cluster {
        Some(cluster) if is_change => cluster.master_of(name),
        _ => server,
    };
    // A cluster changes in one way at a time.
    if is_change && !world.is_free((3, 0, 0)) {
        return;
    }
    let target = if is_network {
        (0, process, server)
    } else if is_process {
        (1, process, 0)
    } else {
        (2, 0, server)
    };
    if !world.is_free(target) || (is_process && !world.oracle().waits.is_running(process)) {
        if is_change {
            world.frees((3, 0, 0));
        }
        return;
    }
    if kind == KillProcess && world.alive() == 1 {
        return world.frees(target);
    }
    // Those whose connections are not cut need no others, if nothing else cuts them.
    let cuts_one = kind == MaxClients && rng.bool();
    let is_of_one = cuts_one && world.plan.classes.only_limits;
    let of_process = (is_network || is_process || is_of_one).then_some(process);
    let of_server = (!is_process).then_some(if world.cluster.is_some() { 0 } else { server });
    let now = world.now();
    let number = world.oracle().begin_fault(now, Some(kind), of_process, of_server);
    let (node, network) = (&world.servers[server], &world.networks[process][server]);
    let set = |change: fn(&mut Network)| {
        let mut state = Network { most_delay: world.plan.most_delay, ..Network::default() };
        change(&mut state);
        network.set_network(state);
    };
    // A host can be suspended for long, and messages can fail for long.
    let left = world.plan.faults_end.saturating_sub(now);
    let longer = match world.plan.mode {
        _ if world.plan.classes.only_messages => left.min(time * 4 + 8 * SECOND),
        Mode::Gentle => time,
        _ => left.min(time * 4),
    };
    match kind {
        Freeze => {
            node.freeze(true);
            sleep(time).await;
            node.freeze(false);
        }
        Hold | HoldRequests | HoldReplies | HoldExisting | Refuse => {
            match kind {
                Hold => set(|network| (network.holds_requests, network.holds_replies) = (true, true)),
                HoldRequests => set(|network| network.holds_requests = true),
                HoldReplies => set(|network| network.holds_replies = true),
                Refuse => {
                    set(|network| network.refuses = true);
                    network.cut();
                }
                _ => set(|network| {
                    (network.holds_requests, network.holds_replies) = (true, true);
                    network.holds_existing = true;
                }),
            }
            // Only the old connections are silent, so it may last for long.
            let left = world.plan.faults_end.saturating_sub(world.now());
            sleep(if kind == HoldExisting { left.min(time * 4) } else { time }).await;
            set(|_| {});
        }
        HoldMessages | RefuseMessages | DenyMessages => {
            match kind {
                RefuseMessages => {
                    set(|network| (network.refuses, network.only_messages) = (true, true));
                    network.cut_messages();
                }
                DenyMessages => {
                    set(|network| network.denies_messages = true);
                    network.cut_messages();
                }
                _ => match rng.u32(..3) {
                    0 => set(|network| (network.holds_requests, network.only_messages) = (true, true)),
                    1 => set(|network| (network.holds_replies, network.only_messages) = (true, true)),
                    _ => set(|network| {
                        (network.holds_requests, network.holds_replies) = (true, true);
                        network.only_messages = true;
                    }),
                },
            }
            sleep(longer).await;
            set(|_| {});
            if kind == DenyMessages {
                // A client repeats a denied subscription only on a new connection, or when others wait.
                network.cut_messages();
            }
        }
        CutMessages => network.cut_messages(),
        MaxClients => {
            node.limit_clients(Some(rng.usize(..=node.clients())));
            if cuts_one {
                network.cut();
            } else {
                world.networks.iter().for_each(|networks| networks[server].cut());
            }
            sleep(time).await;
            node.limit_clients(None);
        }
        Cut => network.cut(),
        CutLate => network.cut_after_delivery(),
        Restart | RestartLost | RestartOld => {
            node.stop();
            sleep(time / 4).await;
            match kind {
                Restart => node.start(Data::Kept),
                RestartLost => node.start(Data::Lost),
                _ => node.start_as_of(age),
            }
        }
        Full => {
            node.fill(true);
            sleep(time).await;
            node.fill(false);
        }
        Slow => {
            node.slow_down(20 * MS);
            sleep(time).await;
            node.slow_down(Duration::ZERO);
        }
        StopProcess | Suspend => {
            let now = world.now();
            world.oracle().waits.runs(process, None);
            if kind == Suspend {
                world.processes[process].suspend()
            } else {
                world.processes[process].stop()
            }
            world.say("process", format_args!("{process} is stopped at {now:?}"));
            sleep(if kind == Suspend { longer } else { time }).await;
            world.processes[process].go_on();
            let now = world.now();
            world.oracle().waits.runs(process, Some(now));
        }
        KillProcess => world.kill(process),
        NoPlace => unreachable!("it is from the beginning on"),
        StepClock => {
            let seconds = one(&mut rng, &[1, -1, 20, -20, 3_600, -3_600]);
            world.step_clock(server, seconds);
            // What was created before would live for an hour longer.
            if seconds == -3_600 {
                sleep(time).await;
                world.step_clock(server, 3_600);
            }
        }
        MoveSlot | FailOver | TakeOver | TakeOverOld => {
            let cluster = world.cluster.as_ref().expect("one");
            if kind == MoveSlot {
                cluster.move_slot(&world, name, time, &mut rng).await;
            } else {
                cluster.replace(&world, kind, server, time, age, &mut rng).await;
            }
            world.frees((3, 0, 0));
        }
    }
    let now = world.now();
    world.oracle().end_fault(now, number);
    if kind != KillProcess {
        world.frees(target);
    }
}
