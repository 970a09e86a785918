// Package clients runs programs in other languages against a suite that the test starts: Kafka's own tools (java/), and the
// examples in Python and TypeScript. They need a JDK, Python and Node, so the tests have the build tag clients, and
// `make test-clients` installs what is missing.
package clients
