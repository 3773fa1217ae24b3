//! Servers in containers, through testcontainers. Containers carry a label that names the supervisor, so that a later
//! one can remove what a killed one left behind.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use testcontainers::bollard::models::PortBinding;
use testcontainers::bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use testcontainers::core::ContainerPort;
use testcontainers::core::client::docker_client_instance;
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, ContainerRequest, CopyTargetOptions, GenericImage, ImageExt as _};

use crate::address::Address;
use crate::probe::{self, postgres::Session};
use crate::server::{Facts, Kind, Origin};
use crate::settings::Settings;
use crate::setup;
use crate::tls::Certificates;

/// How long a daemon may take to say that it is there.
const DAEMON: Duration = Duration::from_secs(2);
/// How long pulling an image and starting it may take.
const START: Duration = Duration::from_secs(300);
/// How long a server may take from its container's start.
const READY: Duration = Duration::from_secs(90);

const LABEL: &str = "pg-pipeline.test-servers.supervisor";
/// Where files of ours lie in a container.
const INSIDE: &str = "/etc/test-servers";

/// A container that is removed with this value, or with [`Running::remove`].
pub(crate) struct Running {
    container: ContainerAsync<GenericImage>,
}

impl Running {
    /// Stops and removes the container with its volumes.
    pub(crate) async fn remove(self) {
        if let Err(error) = self.container.rm().await {
            eprintln!("a container could not be removed: {error}");
        }
    }
}

/// Starts a server in a container.
pub(crate) async fn start(
    settings: &Settings,
    folder: &Path,
    note: &dyn Fn(&str),
) -> anyhow::Result<(Facts, Running)> {
    check_daemon().await?;
    sweep().await;
    let (name, tag) = image_parts(&settings.image);
    let image = GenericImage::new(name, tag);
    let certificates = Certificates::issue()?;
    let request = match settings.kind {
        Kind::Postgres => postgres(image),
        Kind::Mysql => mysql(image),
        Kind::Mariadb => mariadb(image),
    };
    let request =
        with_certificates(request, &certificates).with_label(LABEL, me()).with_startup_timeout(START);
    let container_port = match settings.kind {
        Kind::Postgres => 5432,
        Kind::Mysql | Kind::Mariadb => 3306,
    };
    let request = on_loopback(request, container_port);
    note(&format!("starting a container of {}", settings.image));
    let container = tokio::time::timeout(START, request.start())
        .await
        .context("it took too long")?
        .with_context(|| format!("no container of {} could be started", settings.image))?;
    let running = Running { container };
    let port = running.container.get_host_port_ipv4(container_port).await?;
    let authority = folder.join("ca.crt");
    fs::write(&authority, &certificates.authority)?;
    fs::write(folder.join("client.crt"), &certificates.client)?;
    fs::write(folder.join("client.key"), &certificates.client_key)?;
    fs::set_permissions(folder.join("client.key"), fs::Permissions::from_mode(0o600))?;
    match ready(settings.kind, port).await {
        Ok((url, version)) => {
            let facts = Facts {
                kind: settings.kind,
                origin: Origin::Docker,
                url,
                version,
                source: format!("image {}", settings.image),
                socket: None,
                certificate_authority: (settings.kind != Kind::Mariadb).then_some(authority),
                pid: None,
                folder: None,
            };
            Ok((facts, running))
        }
        Err(error) => {
            let log = last_words(&running.container).await;
            running.remove().await;
            Err(error.context(format!("the container of {} does not answer: {log}", settings.image)))
        }
    }
}

async fn check_daemon() -> anyhow::Result<()> {
    let asking = async { Ok::<_, anyhow::Error>(docker_client_instance().await?.ping().await?) };
    match tokio::time::timeout(DAEMON, asking).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => bail!("no daemon answers ({error:#})"),
        Err(_) => bail!("no daemon answered within {} s", DAEMON.as_secs()),
    }
}

// A server's settings are options, so that official images and stand-ins are treated alike. The key must belong to the
// server's own account, which only a shell in the container can arrange before the image's entry point runs.
fn postgres(image: GenericImage) -> ContainerRequest<GenericImage> {
    let mut command = "exec docker-entrypoint.sh postgres".to_owned();
    for (name, value) in setup::POSTGRES_SETTINGS {
        let _ = write!(command, " -c {name}={value}");
    }
    for (name, file) in [
        ("hba_file", "pg_hba.conf"),
        ("ssl_cert_file", "server.crt"),
        ("ssl_key_file", "server.key"),
        ("ssl_ca_file", "ca.crt"),
    ] {
        let _ = write!(command, " -c {name}={INSIDE}/{file}");
    }
    image
        .with_entrypoint("sh")
        .with_cmd(["-c".to_owned(), format!("{} && {command}", give_key_to("postgres"))])
        .with_env_var("POSTGRES_USER", setup::POSTGRES_USER)
        .with_env_var("POSTGRES_PASSWORD", setup::PASSWORD)
        .with_env_var("POSTGRES_DB", setup::POSTGRES_DATABASE)
        .with_copy_to(target("pg_hba.conf"), setup::HBA.as_bytes().to_vec())
}

fn mysql(image: GenericImage) -> ContainerRequest<GenericImage> {
    let options = setup::MYSQL_OPTIONS.join(" ");
    let command = format!(
        "exec docker-entrypoint.sh mysqld {options} --ssl-ca={INSIDE}/ca.crt --ssl-cert={INSIDE}/server.crt \
         --ssl-key={INSIDE}/server.key"
    );
    image
        .with_entrypoint("sh")
        .with_cmd(["-c".to_owned(), format!("{} && {command}", give_key_to("mysql"))])
        .with_env_var("MYSQL_ROOT_PASSWORD", setup::PASSWORD)
        .with_env_var("MYSQL_DATABASE", setup::MYSQL_DATABASE)
        .with_env_var("MYSQL_USER", setup::MYSQL_USER)
        .with_env_var("MYSQL_PASSWORD", setup::PASSWORD)
}

fn mariadb(image: GenericImage) -> ContainerRequest<GenericImage> {
    image
        .with_entrypoint("sh")
        .with_cmd([
            "-c".to_owned(),
            format!("exec docker-entrypoint.sh mariadbd {}", setup::MARIADB_OPTIONS.join(" ")),
        ])
        .with_env_var("MARIADB_ROOT_PASSWORD", setup::PASSWORD)
        .with_env_var("MARIADB_DATABASE", setup::MYSQL_DATABASE)
        .with_env_var("MARIADB_USER", setup::MYSQL_USER)
        .with_env_var("MARIADB_PASSWORD", setup::PASSWORD)
}

fn give_key_to(account: &str) -> String {
    format!("install -o {account} -g {account} -m 600 {INSIDE}/key.pem {INSIDE}/server.key")
}

fn with_certificates(
    request: ContainerRequest<GenericImage>,
    certificates: &Certificates,
) -> ContainerRequest<GenericImage> {
    request
        .with_copy_to(target("key.pem"), certificates.key.clone().into_bytes())
        .with_copy_to(target("server.crt"), certificates.certificate.clone().into_bytes())
        .with_copy_to(target("ca.crt"), certificates.authority.clone().into_bytes())
}

fn target(name: &str) -> CopyTargetOptions {
    CopyTargetOptions::new(format!("{INSIDE}/{name}")).with_mode(0o644)
}

// Left alone, testcontainers publishes on every address of the host.
fn on_loopback(request: ContainerRequest<GenericImage>, port: u16) -> ContainerRequest<GenericImage> {
    request.with_mapped_port(0, ContainerPort::Tcp(port)).with_host_config_modifier(move |host| {
        let loopback = PortBinding { host_ip: Some("127.0.0.1".into()), host_port: None };
        host.publish_all_ports = Some(false);
        host.port_bindings = Some(HashMap::from([(format!("{port}/tcp"), Some(vec![loopback]))]));
    })
}

async fn ready(kind: Kind, port: u16) -> anyhow::Result<(String, String)> {
    tokio::task::spawn_blocking(move || match kind {
        Kind::Postgres => {
            let url = setup::postgres_url(port);
            let address = Address::parse(&url)?;
            probe::until_ready(READY, || Session::open(&address), || Ok(()))?;
            let version = setup::create_roles(&url)?;
            Ok((url, version))
        }
        Kind::Mysql | Kind::Mariadb => {
            let url = setup::mysql_url(port);
            let address = Address::parse(&url)?;
            let version = probe::until_ready(READY, || probe::mysql::version(&address), || Ok(()))?;
            Ok((url, version))
        }
    })
    .await?
}

async fn last_words(container: &ContainerAsync<GenericImage>) -> String {
    let log = container.stderr_to_vec().await.unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    log.lines().last().unwrap_or("it said nothing").to_owned()
}

// Docker's own reading of `name:tag`: a colon before the last slash belongs to a registry's port.
fn image_parts(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

/// Removes containers whose supervisor is dead. Other hosts' and other process namespaces' are not ours to judge.
async fn sweep() {
    let Ok(docker) = docker_client_instance().await else { return };
    let filters = HashMap::from([("label".to_owned(), vec![LABEL.to_owned()])]);
    let options = ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
    let Ok(containers) = docker.list_containers(Some(options)).await else { return };
    for container in containers {
        let owner = container.labels.as_ref().and_then(|labels| labels.get(LABEL));
        if let (Some(id), Some(owner)) = (&container.id, owner)
            && is_dead(owner)
        {
            let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
            let _ = docker.remove_container(id, Some(options)).await;
        }
    }
}

// `namespace pid start`: the process namespace is unique on a host, and a start time tells a reused id.
fn me() -> String {
    let pid = std::process::id();
    format!("{} {pid} {}", namespace(), start_time(pid).unwrap_or_default())
}

fn is_dead(owner: &str) -> bool {
    let mut words = owner.rsplitn(3, ' ');
    let (Some(start), Some(pid), Some(place)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let Ok(pid) = pid.parse() else { return false };
    place == namespace() && start_time(pid).is_none_or(|now| now != start)
}

fn namespace() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}/{}", host.trim(), processes.display())
}

fn start_time(pid: u32) -> Option<String> {
    start_time_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

// proc(5), /proc/pid/stat: the name in field 2 may hold spaces, so count from its closing parenthesis. The state follows,
// and the start time is field 22. An ended process that nobody has waited for (state Z) has none for us.
fn start_time_in(stat: &str) -> Option<String> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    fields.nth(18).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_split_at_the_tag_only() {
        assert_eq!(image_parts("postgres:18"), ("postgres", "18"));
        assert_eq!(image_parts("local/mysql:9.7"), ("local/mysql", "9.7"));
        assert_eq!(
            image_parts("registry.example:5000/postgres"),
            ("registry.example:5000/postgres", "latest")
        );
    }

    #[test]
    fn a_start_time_is_read_past_any_name_and_a_zombie_has_none() {
        let stat = |state| format!("7 (a) b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 251610 9 9");
        assert_eq!(start_time_in(&stat("S")).as_deref(), Some("251610"));
        assert_eq!(start_time_in(&stat("Z")), None);
    }

    #[test]
    fn only_a_supervisor_of_this_host_that_has_ended_is_dead() {
        assert!(!is_dead(&me()));
        let pid = std::process::id();
        assert!(is_dead(&format!("{} {pid} 1", namespace())), "the id was used again");
        assert!(!is_dead(&format!("elsewhere {pid} 1")));
        assert!(!is_dead("nonsense"));
    }
}
