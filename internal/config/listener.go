package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Endpoint is an address with the name and security protocol it has in listeners.
type Endpoint struct {
	Name     string // upper case
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Host     string // "" for every interface; without brackets
	Port     int    // 0 for one of the system's choice
}

// Address is host and port as net.Listen takes them.
func (l Endpoint) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// String gives Kafka's spelling.
func (l Endpoint) String() string { return l.Name + "://" + l.Address() }

var endpointForm = regexp.MustCompile(`^([^:/,\s]+)://(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-%._]*)):(\d+)$`)

const endpointAllowed = "NAME://host:port, where host may be empty or an IPv6 address in brackets, separated by commas"

// parseEndpoints reads a list of endpoints; the protocol stays open.
func parseEndpoints(text string) ([]Endpoint, error) {
	var out []Endpoint
	for _, part := range splitList(text) {
		m := endpointForm.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q is not of the form %s", part, endpointAllowed)
		}
		port, err := strconv.Atoi(m[4])
		if err != nil || port > 65535 {
			return nil, fmt.Errorf("%q has no port between 0 and 65535", part)
		}
		out = append(out, Endpoint{Name: strings.ToUpper(m[1]), Host: m[2] + m[3], Port: port})
	}
	return out, nil
}

var securityProtocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// parseProtocolMap reads listener.security.protocol.map.
func parseProtocolMap(text string) (map[string]string, error) {
	m := map[string]string{}
	for _, part := range splitList(text) {
		name, protocol, ok := strings.Cut(part, ":")
		name, protocol = strings.ToUpper(strings.TrimSpace(name)), strings.ToUpper(strings.TrimSpace(protocol))
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form NAME:PROTOCOL", part)
		}
		if !slices.Contains(securityProtocols, protocol) {
			return nil, fmt.Errorf("%q names no security protocol; there are %s", part, strings.Join(securityProtocols, ", "))
		}
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("listener %s is mapped twice", name)
		}
		m[name] = protocol
	}
	return m, nil
}

// parsePerIP reads max.connections.per.ip.overrides.
func parsePerIP(text string) (map[string]int, error) {
	m := map[string]int{}
	for _, part := range splitList(text) {
		i := strings.LastIndexByte(part, ':')
		if i <= 0 {
			return nil, fmt.Errorf("%q is not of the form host:number", part)
		}
		n, err := strconv.Atoi(strings.TrimSpace(part[i+1:]))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q has no number of connections", part)
		}
		m[strings.Trim(strings.TrimSpace(part[:i]), "[]")] = n
	}
	return m, nil
}

// wildcard reports whether the host stands for every interface.
func wildcard(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }

// checkListeners parses and judges everything about listeners and sets it on b.
func (c *checker) checkListeners(b *Broker) {
	listeners, err := parseEndpoints(c.text("listeners"))
	if err != nil {
		c.fault("listeners", "%s", err)
		if advertised, err := parseEndpoints(c.text("advertised.listeners")); err != nil {
			c.fault("advertised.listeners", "%s", err)
		} else {
			c.checkAdvertisable("advertised.listeners", advertised)
		}
		return
	}
	if len(listeners) == 0 {
		c.fault("listeners", "at least one listener is needed")
		return
	}
	protocols, err := parseProtocolMap(c.text("listener.security.protocol.map"))
	if err != nil {
		c.fault("listener.security.protocol.map", "%s", err)
		return
	}
	c.checkProtocols(listeners, protocols)
	c.checkClashes(listeners)
	b.Listeners = listeners
	c.chooseInterBroker(b)
	c.chooseAdvertised(b, protocols)
}

// checkProtocols fills in the protocol of each listener.
func (c *checker) checkProtocols(listeners []Endpoint, protocols map[string]string) {
	for i := range listeners {
		l := &listeners[i]
		p, known := protocols[l.Name]
		switch {
		case !known:
			c.fault("listeners", "no security protocol defined for listener %s: add %s:PLAINTEXT to listener.security.protocol.map", l.Name, l.Name)
		}
		l.Protocol = p
	}
}

func (c *checker) checkClashes(listeners []Endpoint) {
	for i, a := range listeners {
		for _, b := range listeners[i+1:] {
			if a.Name == b.Name {
				c.fault("listeners", "listener name %s is used twice", a.Name)
			}
			if a.Port == b.Port && a.Port != 0 && (a.Host == b.Host || wildcard(a.Host) || wildcard(b.Host)) {
				c.fault("listeners", "listeners %s and %s both want port %d", a.Name, b.Name, a.Port)
			}
		}
	}
	host, port, err := net.SplitHostPort(c.text("web.listen"))
	if c.text("web.listen") == "" {
		return
	}
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil {
		c.fault("web.listen", "must be host:port, or empty for none")
		return
	}
	for _, l := range listeners {
		if l.Port == int(n) && n != 0 && (l.Host == host || wildcard(l.Host) || wildcard(host)) {
			c.fault("web.listen", "port %d is already used by listener %s", n, l.Name)
		}
	}
}

// chooseInterBroker finds the listeners that brokers and the controller use.
func (c *checker) chooseInterBroker(b *Broker) {
	name, named := c.set["inter.broker.listener.name"]
	_, byProtocol := c.set["security.inter.broker.protocol"]
	switch {
	case named && byProtocol:
		c.fault("inter.broker.listener.name", "only one of inter.broker.listener.name and security.inter.broker.protocol may be set")
		return
	case named:
		b.InterBrokerListener = strings.ToUpper(strings.TrimSpace(name))
		if _, ok := find(b.Listeners, b.InterBrokerListener); !ok {
			c.fault("inter.broker.listener.name", "must be one of the names in listeners: %s", listenerNames(b.Listeners))
		}
	default:
		b.InterBrokerListener = c.text("security.inter.broker.protocol")
		if _, ok := find(b.Listeners, b.InterBrokerListener); !ok {
			c.fault("listeners", "there is no listener %s for brokers to talk on: set inter.broker.listener.name to one of %s", b.InterBrokerListener, listenerNames(b.Listeners))
		}
	}
	if control := strings.ToUpper(c.text("control.plane.listener.name")); control != "" {
		b.ControlPlaneListener = control
		if _, ok := find(b.Listeners, control); !ok {
			c.fault("control.plane.listener.name", "must be one of the names in listeners: %s", listenerNames(b.Listeners))
		} else if control == b.InterBrokerListener {
			c.fault("control.plane.listener.name", "must not be the inter-broker listener, %s", control)
		}
	}
}

// chooseAdvertised works out what is told to clients.
func (c *checker) chooseAdvertised(b *Broker, protocols map[string]string) {
	key, text := "advertised.listeners", c.text("advertised.listeners")
	advertised, err := parseEndpoints(text)
	if err != nil {
		c.fault(key, "%s", err)
		return
	}
	if text == "" {
		key, advertised = "listeners", slices.Clone(b.Listeners)
	}
	for i := range advertised {
		a := &advertised[i]
		if _, ok := find(b.Listeners, a.Name); !ok {
			c.fault(key, "%s is not one of the names in listeners: %s", a.Name, listenerNames(b.Listeners))
		}
		a.Protocol = protocols[a.Name]
		if a.Host == "" {
			a.Host = c.hostname()
		}
	}
	c.checkAdvertisable(key, advertised)
	if _, ok := find(advertised, b.InterBrokerListener); !ok && text != "" {
		c.fault(key, "the inter-broker listener %s must be advertised too", b.InterBrokerListener)
	}
	b.AdvertisedListeners = advertised
}

// checkAdvertisable refuses addresses that no client can connect to. A port of the system's choice is known once it is bound, so in
// listeners it is none.
func (c *checker) checkAdvertisable(key string, advertised []Endpoint) {
	for _, a := range advertised {
		switch {
		case a.Host == "0.0.0.0" || a.Host == "::":
			c.fault(key, "%s cannot be advertised, clients cannot connect to it: set advertised.listeners to the address they reach this broker by, like %s://%s",
				a, a.Name, net.JoinHostPort(c.hostname(), strconv.Itoa(a.Port)))
		case a.Port == 0 && key == "advertised.listeners":
			c.fault(key, "%s needs a port", a)
		}
	}
}

func find(list []Endpoint, name string) (Endpoint, bool) {
	for _, l := range list {
		if l.Name == name {
			return l, true
		}
	}
	return Endpoint{}, false
}

func listenerNames(list []Endpoint) string {
	names := make([]string, len(list))
	for i, l := range list {
		names[i] = l.Name
	}
	return strings.Join(names, ", ")
}
