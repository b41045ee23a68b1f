//! A table of merges, worked out by hand from the rules of Compose v2.

use std::sync::Arc;

use super::*;
use crate::stack::node::Source;
use crate::stack::yaml;

fn tree(text: &str) -> Arc<Node> {
    let source = Arc::new(Source {
        path: "c.yaml".into(),
        folder: "/".into(),
        is_inline: false,
    });
    yaml::parse(&source, text).unwrap().remove(0)
}

fn show(node: &Node) -> String {
    match &node.value {
        Value::Scalar(_) if node.is_null() => "~".to_owned(),
        Value::Scalar(scalar) => scalar.text.to_string(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| show(item)).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Map(entries) => {
            let pairs: Vec<String> = entries
                .iter()
                .map(|(key, entry)| format!("{key}:{}", show(&entry.node)))
                .collect();
            format!("{{{}}}", pairs.join(" "))
        }
    }
}

fn merged(earlier: &str, later: &str) -> (String, Vec<String>) {
    let mut notes = Notes::default();
    let node = merge_service(&tree(earlier), &tree(later), &mut notes);
    let problems = notes.problems.iter().map(ToString::to_string).collect();
    (show(&node), problems)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn services_merge_as_compose_merges_them() {
    for (earlier, later, expected) in [
        ("{image: a}", "{image: b}", "{image:b}"),
        ("{image: a}", "{cpus: 1}", "{image:a cpus:1}"),
        ("{command: [a, b]}", "{command: [c]}", "{command:[c]}"),
        ("{entrypoint: a b}", "{entrypoint: [c]}", "{entrypoint:[c]}"),
        (
            "{environment: {A: 1, B: 2}}",
            "{environment: {B: 3}}",
            "{environment:{A:1 B:3}}",
        ),
        (
            "{environment: [A=1, B=2]}",
            "{environment: {B: 3, C: 4}}",
            "{environment:{A:1 B:3 C:4}}",
        ),
        (
            "{environment: {A: 1}}",
            "{environment: [A=2, B]}",
            "{environment:{A:2 B:~}}",
        ),
        (
            "{environment: {A: 1}}",
            "{environment: }",
            "{environment:{A:1}}",
        ),
        (
            "{labels: [a=1]}",
            "{labels: {a: 2, b: 3}}",
            "{labels:{a:2 b:3}}",
        ),
        (
            "{sysctls: [a=1]}",
            "{sysctls: {b: 2}}",
            "{sysctls:{a:1 b:2}}",
        ),
        (
            "{deploy: {resources: {limits: {cpus: 1, memory: 1g}}}}",
            "{deploy: {resources: {limits: {cpus: 2}}}}",
            "{deploy:{resources:{limits:{cpus:2 memory:1g}}}}",
        ),
        (
            "{healthcheck: {test: [CMD, a], retries: 1}}",
            "{healthcheck: {test: b}}",
            "{healthcheck:{test:b retries:1}}",
        ),
        (
            "{volumes: [a:/x, b:/y]}",
            "{volumes: [c:/x:ro, d:/z]}",
            "{volumes:[c:/x:ro b:/y d:/z]}",
        ),
        (
            "{volumes: [a:/x]}",
            "{volumes: [{type: volume, source: b, target: /x}]}",
            "{volumes:[{type:volume source:b target:/x}]}",
        ),
        ("{volumes: [/x]}", "{volumes: [a:/x/]}", "{volumes:[a:/x/]}"),
        (
            "{ports: ['80:80']}",
            "{ports: ['80:80', '81:80']}",
            "{ports:[80:80 81:80]}",
        ),
        ("{cap_add: [A]}", "{cap_add: [A, B]}", "{cap_add:[A B]}"),
        ("{tmpfs: /a}", "{tmpfs: [/b, /a]}", "{tmpfs:[/a /b]}"),
        (
            "{tmpfs: ['/a:size=1m']}",
            "{tmpfs: ['/a:size=2m']}",
            "{tmpfs:[/a:size=2m]}",
        ),
        (
            "{devices: ['/dev/a:/dev/x']}",
            "{devices: ['/dev/b:/dev/x:r']}",
            "{devices:[/dev/b:/dev/x:r]}",
        ),
        (
            "{build: ./a}",
            "{build: {target: t}}",
            "{build:{context:./a target:t}}",
        ),
        (
            "{build: {context: a, args: {X: 1, Y: 2}}}",
            "{build: {context: b, args: [Y=3, Z]}}",
            "{build:{context:b args:{X:1 Y:3 Z:~}}}",
        ),
        (
            "{build: {context: a, tags: [x]}}",
            "{build: {tags: [y, x]}}",
            "{build:{context:a tags:[x y]}}",
        ),
        ("{build: a}", "{build: !reset null, image: b}", "{image:b}"),
        (
            "{deploy: {replicas: 2}}",
            "{deploy: {replicas: 8}, scale: 8}",
            "{deploy:{replicas:8} scale:8}",
        ),
        (
            "{dns: 1.1.1.1}",
            "{dns: [8.8.8.8, 1.1.1.1]}",
            "{dns:[1.1.1.1 8.8.8.8]}",
        ),
        (
            "{extra_hosts: {a: 1}}",
            "{extra_hosts: {a: 2, b: 3}}",
            "{extra_hosts:{a:2 b:3}}",
        ),
        (
            "{depends_on: {a: {condition: service_started}}}",
            "{depends_on: !override {b: {condition: service_healthy}}}",
            "{depends_on:{b:{condition:service_healthy}}}",
        ),
        (
            "{links: [a, 'b:c']}",
            "{links: ['b:c', d]}",
            "{links:[a b:c d]}",
        ),
        ("{init: true}", "{init: false}", "{init:false}"),
        (
            "{env_file: a.env}",
            "{env_file: [b.env, a.env]}",
            "{env_file:[a.env b.env]}",
        ),
        (
            "{depends_on: [a]}",
            "{depends_on: {b: {condition: service_healthy}}}",
            "{depends_on:{a:{condition:service_started} b:{condition:service_healthy}}}",
        ),
        (
            "{depends_on: {a: {condition: service_healthy, required: false}}}",
            "{depends_on: [a]}",
            "{depends_on:{a:{condition:service_started required:false}}}",
        ),
        (
            "{networks: [a]}",
            "{networks: {a: {aliases: [x]}, b: }}",
            "{networks:{a:{aliases:[x]} b:~}}",
        ),
        (
            "{networks: {a: {aliases: [x]}}}",
            "{networks: {a: {aliases: [y, x]}}}",
            "{networks:{a:{aliases:[x y]}}}",
        ),
        (
            "{networks: {a: {aliases: [x]}}}",
            "{networks: [a]}",
            "{networks:{a:{aliases:[x]}}}",
        ),
        (
            "{ulimits: {nofile: 5}}",
            "{ulimits: {nofile: {soft: 1, hard: 2}}}",
            "{ulimits:{nofile:{soft:1 hard:2}}}",
        ),
        (
            "{secrets: [a, b]}",
            "{secrets: [{source: c, target: a}]}",
            "{secrets:[{source:c target:a} b]}",
        ),
        (
            "{extra_hosts: [a:1]}",
            "{extra_hosts: [b:2]}",
            "{extra_hosts:[a:1 b:2]}",
        ),
        (
            "{extra_hosts: ['a:1', 'b=2']}",
            "{extra_hosts: {a: 3, c: 4}}",
            "{extra_hosts:{a:3 b:[2] c:4}}",
        ),
        (
            "{extra_hosts: {a: 1, b: 2}}",
            "{extra_hosts: ['a:3', 'c=::4', 'c:5']}",
            "{extra_hosts:{a:[3] b:2 c:[::4 5]}}",
        ),
        (
            "{extra_hosts: ['a:1']}",
            "{extra_hosts: ['a=1', 'a:2']}",
            "{extra_hosts:[a=1 a:2]}",
        ),
        (
            "{build: {extra_hosts: ['a:1']}}",
            "{build: {extra_hosts: {b: 2}}}",
            "{build:{extra_hosts:{a:[1] b:2}}}",
        ),
        (
            "{build: {args: [A=1]}}",
            "{build: {args: {B: 2}}}",
            "{build:{args:{A:1 B:2}}}",
        ),
        (
            "{annotations: {a: 1}}",
            "{annotations: [b=2]}",
            "{annotations:{a:1 b:2}}",
        ),
        (
            "{storage_opt: [size=1]}",
            "{storage_opt: {b: 2}}",
            "{storage_opt:{size:1 b:2}}",
        ),
        // What the reader refuses is kept for it to see.
        (
            "{environment: [{A: 1}]}",
            "{environment: {B: 2}}",
            "{environment:[{A:1}]}",
        ),
        ("{image: a, cpus: 1}", "{cpus: !reset null}", "{image:a}"),
        ("{ports: ['1:1']}", "{ports: !reset []}", "{}"),
        (
            "{ports: ['1:1']}",
            "{ports: !override ['2:2']}",
            "{ports:[2:2]}",
        ),
        (
            "{environment: {A: 1, B: 2}}",
            "{environment: !override {C: 3}}",
            "{environment:{C:3}}",
        ),
        (
            "{environment: {A: 1, B: 2}}",
            "{environment: {A: !reset null}}",
            "{environment:{B:2}}",
        ),
        (
            "{depends_on: [a, b]}",
            "{depends_on: {a: !reset null}}",
            "{depends_on:{b:{condition:service_started}}}",
        ),
        (
            "{image: a}",
            "{deploy: {labels: !reset [], replicas: 1}}",
            "{image:a deploy:{replicas:1}}",
        ),
        ("{profiles: [a]}", "{profiles: [b]}", "{profiles:[a b]}"),
        (
            "{logging: {driver: x}}",
            "{logging: {options: {a: 1}}}",
            "{logging:{driver:x options:{a:1}}}",
        ),
        ("{image: a}", "{image: }", "{image:~}"),
    ] {
        let (shown, problems) = merged(earlier, later);
        assert_eq!(shown, expected, "{earlier} + {later}");
        assert!(problems.is_empty(), "{earlier} + {later}: {problems:?}");
    }
}

#[test]
fn values_of_different_forms_do_not_merge() {
    let (_, problems) = merged("{deploy: {replicas: 1}}", "{deploy: [a]}");
    assert_eq!(
        problems,
        [
            "c.yaml:1:10: deploy: a list cannot be merged with a map at c.yaml:1:10\n  hint: write both in the same form, or tag this one `!override`"
        ]
    );
}

#[test]
fn elements_merge_deep() {
    let mut notes = Notes::default();
    let node = merge_element(
        &tree("{driver: bridge, driver_opts: {a: 1}}"),
        &tree("{driver_opts: {b: 2}, internal: true}"),
        &mut notes,
    );
    assert_eq!(
        show(&node),
        "{driver:bridge driver_opts:{a:1 b:2} internal:true}"
    );
    let node = merge_element(
        &tree("{labels: [a=1]}"),
        &tree("{labels: {b: 2}}"),
        &mut notes,
    );
    assert_eq!(show(&node), "{labels:{a:1 b:2}}");
}
