// Package routing compiles and runs the CEL rules of a channel's routes. It owns the environment that a rule sees, its
// limits and what a rule's failure means; the broker uses it to refuse a bad rule when a channel is written, the agent to
// pick each message's topic. It knows neither channels' config nor the wire.
//
// A rule is a bool expression over
//
//	headers  map(string, string)  of a name that repeats, the last; bytes that are no UTF-8 are replaced
//	key      string               empty where the message has none
//	lane     string               empty where there is none
//	channel  string
//	json     dyn                  the payload; parsed only for rules that name it, null where it is no JSON
//
// JSON integers that fit 64 bits are ints, all other numbers doubles; of members with one name the last counts.
// A rule that fails at run time (a field that the payload lacks, a cost past the limit) does not match.
package routing

import (
	"errors"
	"fmt"

	"cel.dev/cel-go/cel"
)

const (
	// MaxExpressionBytes of one rule.
	MaxExpressionBytes = 4096
	// maxCost of one evaluation, in CEL's units: roughly one a visited node or 10 bytes of a string. A rule that needs more is
	// doing a consumer's work.
	maxCost = 100_000
	// maxNesting of comprehensions: two already make it quadratic in the payload.
	maxNesting = 2
	// maxRegexProgram bounds a pattern's compiled size.
	maxRegexProgram = 4096
	maxDepth        = 50
)

// Compiler holds the rules' environment, which is dear to build and is shared. Its methods may run concurrently.
type Compiler struct {
	env *cel.Env
}

// NewCompiler builds the environment. It fails only where the library and this package disagree.
func NewCompiler() (*Compiler, error) {
	env, err := cel.NewEnv(
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("key", cel.StringType),
		cel.Variable("lane", cel.StringType),
		cel.Variable("channel", cel.StringType),
		cel.Variable("json", cel.DynType),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(MaxExpressionBytes),
		cel.ParserRecursionLimit(maxDepth),
		cel.ParserErrorRecoveryLimit(1),
		cel.RegexProgramSizeLimit(maxRegexProgram),
		cel.ASTValidators(
			cel.ValidateComprehensionNestingLimit(maxNesting),
			cel.ValidateRegexLiterals(),
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
		),
	)
	if err != nil {
		return nil, fmt.Errorf("routing: build the CEL environment: %w", err)
	}
	return &Compiler{env: env}, nil
}

// SyntaxError says why a rule was refused, and where where that is known.
type SyntaxError struct {
	Line, Column int // from 1; 0 where there is no position
	Problem      string
}

// Error puts the position first.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Problem
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// Rule is a compiled expression. It is immutable: any number of goroutines may use it.
type Rule struct {
	source    string
	program   cel.Program // nil: matches everything
	needsJSON bool
	needsHead bool
}

// Compile checks and compiles a rule; an empty one matches everything. The error is a *SyntaxError.
func (c *Compiler) Compile(expr string) (*Rule, error) {
	if expr == "" {
		return &Rule{}, nil
	}
	if len(expr) > MaxExpressionBytes {
		return nil, &SyntaxError{Problem: fmt.Sprintf("the rule has %d bytes, at most %d are allowed", len(expr), MaxExpressionBytes)}
	}
	ast, issues := c.env.Compile(expr)
	if err := issues.Err(); err != nil {
		return nil, firstIssue(issues)
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, &SyntaxError{Problem: fmt.Sprintf("the rule must be a bool, it is %s; compare it with something", ast.OutputType())}
	}
	program, err := c.env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil {
		return nil, &SyntaxError{Problem: err.Error()}
	}
	r := &Rule{source: expr, program: program}
	for _, ref := range ast.NativeRep().ReferenceMap() {
		switch ref.Name {
		case "json":
			r.needsJSON = true
		case "headers":
			r.needsHead = true
		}
	}
	return r, nil
}

func firstIssue(issues *cel.Issues) error {
	list := issues.Errors()
	if len(list) == 0 {
		return &SyntaxError{Problem: issues.Err().Error()}
	}
	first := list[0]
	return &SyntaxError{Line: first.Location.Line(), Column: first.Location.Column() + 1, Problem: first.Message}
}

// String returns the rule as it was given to Compile.
func (r *Rule) String() string { return r.source }

// NeedsJSON tells whether the rule looks at the payload.
func (r *Rule) NeedsJSON() bool { return r.needsJSON }

// errNotBool cannot happen to a rule that Compile took; it keeps Match honest.
var errNotBool = errors.New("the rule did not yield a bool")

// Match runs the rule. An error says why the rule could not be decided; the message does not match then.
func (r *Rule) Match(m *Message) (bool, error) {
	if r.program == nil {
		return true, nil
	}
	out, _, err := r.program.Eval(m)
	if err != nil {
		return false, fmt.Errorf("run rule %q: %w", r.source, err)
	}
	match, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("run rule %q: %w", r.source, errNotBool)
	}
	return match, nil
}
