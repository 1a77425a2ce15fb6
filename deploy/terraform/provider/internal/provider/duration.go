package provider

import (
	"fmt"
	"regexp"
	"strconv"
)

var (
	durationPart  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)`)
	durationUnits = map[string]float64{"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
)

// longestDuration bounds what is taken for one: a hundred years, in seconds.
const longestDuration = 100 * 365 * 86400

// parseDuration is the seconds of a text such as `90s`, `1h30m` or `2d`.
func parseDuration(text string) (float64, error) {
	wrong := fmt.Errorf("`%s` is no duration such as 90s, 5m, 1h30m or 2d (units: ms, s, m, h, d, w)", shortened(text))
	seconds, rest := 0.0, text
	for rest != "" {
		match := durationPart.FindStringSubmatch(rest)
		if match == nil {
			return 0, wrong
		}
		number, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			return 0, wrong
		}
		seconds += number * durationUnits[match[2]]
		rest = rest[len(match[0]):]
	}
	if text == "" || seconds > longestDuration {
		return 0, wrong
	}
	return seconds, nil
}

func shortened(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
