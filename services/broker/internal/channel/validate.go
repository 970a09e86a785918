package channel

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/keypath"
	"github.com/databus-suite/databus/internal/routing"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

// maxConfigBytes bounds one config, so that a channel's entry fits what any NATS server takes.
const maxConfigBytes = 256 << 10

// Defaults of retry that validation needs to compare with; channel.proto promises them.
const (
	defaultInitialBackoff = 50 * time.Millisecond
	defaultMaxBackoff     = 2 * time.Second
)

// validator refuses what an agent could not run. Its methods may run concurrently.
type validator struct {
	rules *routing.Compiler
	proto protovalidate.Validator
}

func newValidator() (*validator, error) {
	rules, err := routing.NewCompiler()
	if err != nil {
		return nil, err
	}
	p, err := protovalidate.New(protovalidate.WithMessages(&databusv1.CreateChannelRequest{}))
	if err != nil {
		return nil, fmt.Errorf("channel: build the validator: %w", err)
	}
	return &validator{rules: rules, proto: p}, nil
}

// checkName applies the rules of topic names: a channel's default topic has its name.
func checkName(name string) error {
	if problem := topic.NameProblem(name); problem != "" {
		return errs.New(errs.Invalid, "CHANNEL_NAME", "channel name %q is not valid: %s", name, problem).WithField("name").WithNext(topic.NameRule)
	}
	return nil
}

// check says what is wrong with a config. The error is Invalid, with the field's path from `config.` on.
func (v *validator) check(name string, c *databusv1.ChannelConfig) error {
	if size := proto.Size(c); size > maxConfigBytes {
		return errs.New(errs.TooLarge, "CHANNEL_CONFIG", "channel %q: its config has %d bytes, at most %d are allowed", name, size, maxConfigBytes).WithField("config")
	}
	// The rules in the proto files hold for what a mask or a rollback makes too, not only for what a request carries.
	if err := v.proto.Validate(&databusv1.CreateChannelRequest{Name: name, Config: c}); err != nil {
		return errs.FromValidation(err)
	}
	for _, check := range []func(*databusv1.ChannelConfig) error{v.checkRoutes, checkKeyPath, checkCompression, checkRetry} {
		if err := check(c); err != nil {
			return err
		}
	}
	return nil
}

func refuse(field, next, format string, args ...any) error {
	return errs.New(errs.Invalid, "CHANNEL_CONFIG", "channel config: "+format, args...).WithField("config."+field).WithNext("%s", next)
}

func (v *validator) checkRoutes(c *databusv1.ChannelConfig) error {
	for i, route := range c.GetRoutes() {
		field := "routes[" + strconv.Itoa(i) + "]"
		if err := topic.CheckName(route.GetTopic(), "config."+field+".topic"); err != nil {
			return err
		}
		if _, err := v.rules.Compile(route.GetWhen()); err != nil {
			return refuse(field+".when", "write a CEL expression that is a bool, such as headers['region'] == 'eu'",
				"the rule %q cannot be used: %v", abbreviate(route.GetWhen()), err)
		}
	}
	return nil
}

func abbreviate(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

func checkKeyPath(c *databusv1.ChannelConfig) error {
	if c.GetKeyPath() == "" {
		return nil
	}
	_, err := keypath.Compile(c.GetKeyPath())
	var syntax *keypath.SyntaxError
	if errors.As(err, &syntax) {
		return refuse("keyPath", "write an RFC 9535 singular query, such as $.user.id", "%v", err)
	}
	return err
}

// levels are the compression levels that a codec has; 0 is its default everywhere.
var levels = map[databusv1.Codec]struct {
	name string
	most int32
}{
	databusv1.Codec_CODEC_UNSPECIFIED: {"ZSTD", 19},
	databusv1.Codec_CODEC_NONE:        {"NONE", 0},
	databusv1.Codec_CODEC_GZIP:        {"GZIP", 9},
	databusv1.Codec_CODEC_SNAPPY:      {"SNAPPY", 0},
	databusv1.Codec_CODEC_LZ4:         {"LZ4", 9},
	databusv1.Codec_CODEC_ZSTD:        {"ZSTD", 19},
}

func checkCompression(c *databusv1.ChannelConfig) error {
	level := c.GetCompression().GetLevel()
	codec, known := levels[c.GetCompression().GetCodec()]
	switch {
	case !known:
		return refuse("compression.codec", "use NONE, GZIP, SNAPPY, LZ4 or ZSTD", "there is no codec %d", c.GetCompression().GetCodec())
	case level > codec.most && codec.most == 0:
		return refuse("compression.level", "leave the level out", "codec %s has no levels", codec.name)
	case level > codec.most:
		return refuse("compression.level", fmt.Sprintf("use 1 to %d, or 0 for the default", codec.most), "codec %s has no level %d", codec.name, level)
	}
	return nil
}

func checkRetry(c *databusv1.ChannelConfig) error {
	first := orDefault(c.GetRetry().GetInitialBackoff(), defaultInitialBackoff)
	most := orDefault(c.GetRetry().GetMaxBackoff(), defaultMaxBackoff)
	if first > most {
		return refuse("retry.initialBackoff", "make it no longer than retry.maxBackoff", "the first backoff %s is longer than the longest, %s", first, most)
	}
	return nil
}

func orDefault(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.AsDuration()
}

func checkLabels(labels map[string]string) error {
	for name, value := range labels {
		if name == "" || len(name) > 256 || len(value) > 256 {
			return errs.New(errs.Invalid, "CANARY_LABELS", "canary label %q=%q is not possible", abbreviate(name), abbreviate(value)).
				WithField("canaryLabels").WithNext("use a name of 1 to 256 characters and a value of at most 256")
		}
	}
	return nil
}
