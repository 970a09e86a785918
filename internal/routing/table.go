package routing

import "fmt"

// Route is a topic and the rule that sends messages to it; an empty rule matches everything.
type Route struct {
	Topic string
	When  string
}

// RouteError names the route of a table that does not compile.
type RouteError struct {
	Index int
	Err   error
}

// Error names the route from 0, as the config's field path does.
func (e *RouteError) Error() string { return fmt.Sprintf("routes[%d].when: %v", e.Index, e.Err) }

// Unwrap returns the *SyntaxError.
func (e *RouteError) Unwrap() error { return e.Err }

// Table is a channel's compiled routes. It is immutable: any number of goroutines may use it.
type Table struct {
	topics    []string
	rules     []*Rule
	fixed     bool // the first route takes everything
	needsJSON bool
	needsHead bool
}

// Table compiles routes, in their order. The error is a *RouteError.
func (c *Compiler) Table(routes []Route) (*Table, error) {
	t := &Table{}
	for i, route := range routes {
		rule, err := c.Compile(route.When)
		if err != nil {
			return nil, &RouteError{Index: i, Err: err}
		}
		t.topics = append(t.topics, route.Topic)
		t.rules = append(t.rules, rule)
		t.needsJSON = t.needsJSON || rule.needsJSON
		t.needsHead = t.needsHead || rule.needsHead
	}
	t.fixed = len(t.rules) > 0 && t.rules[0].program == nil
	return t, nil
}

// Fixed returns the topic of a table whose first route takes everything, for which no Message need be built.
func (t *Table) Fixed() (topic string, ok bool) {
	if !t.fixed {
		return "", false
	}
	return t.topics[0], true
}

// Topics are the routes' topics in their order; one may repeat. Not to be changed.
func (t *Table) Topics() []string { return t.topics }

// NeedsJSON tells whether a rule looks at the payload.
func (t *Table) NeedsJSON() bool { return t.needsJSON }

// NeedsHeaders tells whether a rule looks at the headers.
func (t *Table) NeedsHeaders() bool { return t.needsHead }

// Pick returns the topic of the first route that matches; ok is false where none does. failed is the first rule's failure
// on the way, for the caller to count: a rule that fails does not match.
func (t *Table) Pick(m *Message) (topic string, ok bool, failed error) {
	for i, rule := range t.rules {
		match, err := rule.Match(m)
		if err != nil && failed == nil {
			failed = err
		}
		if match {
			return t.topics[i], true, failed
		}
	}
	return "", false, failed
}
