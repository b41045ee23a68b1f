//! Networks, and what services share with each other.

use super::*;

#[test]
fn hardware_addresses_belong_to_a_network() {
    let stack = Case::new(
        "services:\n  app:\n    image: a\n    mac_address: 02:42:ac:11:00:05\n    networks: {n: {}, m: {mac_address: 02-42-AC-11-00-06}}\nnetworks: {n: , m: }\n",
    )
    .stack();
    let networks = &stack.services["app"].networks;
    assert_eq!(
        networks["n"].mac_address.as_deref(),
        Some("02:42:ac:11:00:05")
    );
    assert_eq!(
        networks["m"].mac_address.as_deref(),
        Some("02-42-AC-11-00-06")
    );
    assert!(said(&stack, "mac_address").contains("before version 25"));
    for (lines, what) in [
        ("mac_address: 02:42", "`02:42` is not a hardware address"),
        (
            "mac_address: 02:42:ac:11:00:05\nnetwork_mode: host",
            "cannot stand beside `network_mode: host`",
        ),
    ] {
        let problems = Case::app(&format!("image: a\n{lines}")).problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
}

#[test]
fn attachments_keep_their_drivers_options_and_link_addresses() {
    let stack = Case::app(
        "image: a\nnetworks: {default: {link_local_ips: [169.254.1.5], driver_opts: {a: 1}, interface_name: eth9, priority: 5, x-own: 1}}",
    )
    .compose(
        "b.yaml",
        "services: {app: {networks: {default: {link_local_ips: [169.254.1.5, 169.254.1.6]}}}}\n",
    )
    .stack();
    let attachment = &stack.services["app"].networks["default"];
    assert_eq!(attachment.link_local_ips, ["169.254.1.5", "169.254.1.6"]);
    assert_eq!(attachment.driver_opts["a"], "1");
    assert_eq!(
        attachment.driver_opts["com.docker.network.endpoint.ifname"],
        "eth9"
    );
    assert!(said(&stack, "networks.default.interface_name").contains("before version 28"));
}

#[test]
fn modes_of_the_network_are_served_and_said() {
    let stack = Case::app("image: a\nnetwork_mode: host").stack();
    assert!(said(&stack, "network_mode").contains("its ports are the host's own"));
    let stack = Case::app("image: a\nnetwork_mode: bridge").stack();
    assert!(said(&stack, "network_mode").contains("do not know each other by name"));
    let text =
        "services:\n  db: {image: b, hostname: h}\n  app: {image: a, network_mode: 'service:db'}\n";
    let stack = Case::new(text).roots(&["app"]).stack();
    assert_eq!(
        stack.services["app"].shares_with().collect::<Vec<_>>(),
        ["db"]
    );
    for key in ["hostname: h", "dns: 1.1.1.1", "extra_hosts: ['a:1.2.3.4']"] {
        let problems = Case::new(&format!(
            "services:\n  db: {{image: b}}\n  app:\n    image: a\n    network_mode: service:db\n    {key}\n"
        ))
        .problems();
        assert_eq!(problems.len(), 1, "{key}: {problems:?}");
        assert!(
            problems[0].contains("cannot stand beside `network_mode: service:db`"),
            "{key}: {problems:?}"
        );
    }
    let problems = Case::app("image: a\nuts: host\nhostname: h").problems();
    assert!(problems[0].contains("services.app.hostname: cannot stand beside `uts: host`"));
}

#[test]
fn a_service_whose_communication_is_shared_is_made_shareable() {
    let text = |mode: &str| {
        format!("services:\n  app: {{image: a, ipc: 'service:db'}}\n  db: {{image: b{mode}}}\n")
    };
    let stack = Case::new(&text("")).stack();
    assert_eq!(stack.services["db"].ipc.as_deref(), Some("shareable"));
    assert!(
        stack.warnings.contains(
            &"services.db.ipc: made `shareable`, since another service shares it".to_owned()
        ),
        "{:?}",
        stack.warnings
    );
    let stack = Case::new(&text(", ipc: host")).stack();
    assert_eq!(stack.services["db"].ipc.as_deref(), Some("host"));
    let problems = Case::new(&text(", ipc: private")).problems();
    assert!(
        problems[0].contains("services.app.ipc: `db` has `ipc: private`"),
        "{problems:?}"
    );
}

#[test]
fn an_external_network_is_joined_only_where_it_is_listed_as_shared() {
    for (definition, outside) in [
        ("{external: true}", "proxy"),
        ("{external: true, name: traefik_public}", "traefik_public"),
        ("{external: {name: old_form}}", "old_form"),
    ] {
        let text = format!(
            "services:\n  app: {{image: a, networks: [proxy]}}\nnetworks: {{proxy: {definition}}}\n"
        );
        let mut case = Case::new(&text);
        let stack = case.stack();
        assert_eq!(stack.networks["proxy"].external, None, "{definition}");
        assert!(stack.warnings[0].contains("each trial gets a network of its own"));
        for listed in ["proxy", outside] {
            case.shared_now(&[listed], "/");
            let stack = case.stack();
            let network = &stack.networks["proxy"];
            assert_eq!(network.external.as_deref(), Some(outside), "{listed}");
            assert!(
                stack.warnings[0].contains("joined as it is"),
                "{:?}",
                stack.warnings
            );
        }
    }
}
