//! `--devices` of `train` and `generate`, and the ranks that launchers start.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fulgurite::Device;
use fulgurite_kernels::machine::exit_at_once;
use fulgurite_kernels::mesh::Mesh;
use fulgurite_kernels::ranks::environment::{MESH, OPEN_MPI, SECRET, TORCHRUN};
use fulgurite_kernels::ranks::{Joined, PATIENCE, ended, environment, join_telling, rank};

use super::super::launch;
use super::super::outcome::Failed;
use super::super::output::{complain, note};

/// How long a rank may wait for one that has ended: a device waits without a limit.
const FOR_ENDED: Duration = Duration::from_secs(15);
/// How often it is looked whether one has ended.
const LOOK: Duration = Duration::from_millis(200);

/// What this process is of a run.
pub enum Place {
    /// It started the ranks, and they have ended.
    Started(ExitCode),
    /// It is one of them, or the only one.
    Rank(Option<Joined>),
}

/// Starts the ranks that are asked for, or joins them if this process is one; the device is then that of the rank.
/// `mesh` says how so many ranks are arranged.
pub fn place(
    devices: Option<u16>,
    device: &mut Device,
    mesh: &dyn Fn(usize) -> Result<Mesh, String>,
) -> Result<Place, Failed> {
    let devices = devices.map(usize::from);
    let several = devices.filter(|devices| *devices > 1);
    // Without a secret the variables are those of a launcher around this one, which has started this process alone.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let one_of_several = [TORCHRUN, OPEN_MPI].iter().any(|[_, ranks, _]| number(ranks).is_some_and(|ranks| ranks > 1));
    let own = several.is_some() && std::env::var_os(SECRET).is_none() && !one_of_several;
    let member = if own { None } else { environment().map_err(Failed)? };
    let Some(mut member) = member else {
        return match several {
            Some(ranks) => launch::again(mesh(ranks).map_err(Failed)?, device_of(*device, 0)?).map(Place::Started),
            None => Ok(Place::Rank(None)),
        };
    };
    let ranks = member.mesh.ranks();
    if let Some(devices) = devices.filter(|devices| *devices != ranks) {
        return Err(Failed(format!("--devices is {devices}, and this is one of {ranks} ranks")));
    }
    // Launchers of others know the number of ranks alone.
    if ranks > 1 && std::env::var_os(MESH).is_none() {
        member.mesh = mesh(ranks).map_err(Failed)?;
    }
    *device = device_of(*device, member.local_rank)?;
    let joined = join_telling(&member, PATIENCE, &|waits| note(waits)).map_err(|error| Failed(error.to_string()))?;
    Ok(Place::Rank(Some(joined)))
}

/// Ends this process where it trains on although another rank has ended, as long as this is there.
pub struct Watch(Arc<AtomicBool>);

impl Watch {
    /// Begins to watch, if this process is one of several ranks.
    pub fn start(joined: Option<&Joined>) -> Watch {
        let over = Arc::new(AtomicBool::new(joined.is_none()));
        let trained = over.clone();
        let watch = move || {
            let mut since = None;
            while !trained.load(Ordering::SeqCst) {
                if let Some(other) = ended()
                    && since.get_or_insert_with(Instant::now).elapsed() > FOR_ENDED
                {
                    complain(&format!("rank {} still waits, and rank {other} has ended or failed", rank()));
                    exit_at_once(1);
                }
                sleep(LOOK);
            }
        };
        if joined.is_some() {
            // Where there is no thread, launchers end ranks that wait.
            let _ = thread::Builder::new().name("watching ranks".into()).spawn(watch);
        }
        Watch(over)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The device of a rank of this host.
fn device_of(device: Device, local_rank: usize) -> Result<Device, Failed> {
    match (device.is_cpu(), device.index()) {
        (true, _) => Ok(device),
        (false, 0) => Ok(Device::new(device.kind(), local_rank as u32)),
        _ => {
            Err(Failed(format!("--device is {device} on several ranks, expected {}: each has its own", device.kind())))
        }
    }
}
