package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"klamm/internal/coord"
	"klamm/internal/quota"
)

// entityPart reads one element of a quota entity's path.
func entityPart(sanitized string) (quota.Part, error) {
	if sanitized == coord.DefaultEntity {
		return quota.DefaultPart(), nil
	}
	if sanitized == "" || sanitized == "." || sanitized == ".." || strings.Contains(sanitized, "/") {
		return quota.Part{}, fmt.Errorf("%q is no name of an entity", sanitized)
	}
	name, err := coord.DesanitizeEntity(sanitized)
	return quota.NamedPart(name), err
}

func sanitizedPart(p quota.Part) string {
	if p.Is == quota.Default {
		return coord.DefaultEntity
	}
	return coord.SanitizeName(p.Name)
}

// userOrClientEntity reads the path of an entity below /config/users or /config/clients: "U", "U/clients/C" or "C".
func userOrClientEntity(kind, name string) (e quota.Entity, err error) {
	user, client, both := strings.Cut(name, "/"+coord.ClientConfigs+"/")
	switch {
	case kind == coord.ClientConfigs:
		e.Client, err = entityPart(name)
		return e, err
	case both:
		if e.Client, err = entityPart(client); err != nil {
			return e, err
		}
	}
	e.User, err = entityPart(user)
	return e, err
}

// quotaNode is where the config of a user, a client id or both lies.
func quotaNode(e quota.Entity) (kind, name string) {
	switch {
	case e.User.Is == quota.Absent:
		return coord.ClientConfigs, sanitizedPart(e.Client)
	case e.Client.Is == quota.Absent:
		return coord.UserConfigs, sanitizedPart(e.User)
	default:
		return coord.UserConfigs, sanitizedPart(e.User) + "/" + coord.ClientConfigs + "/" + sanitizedPart(e.Client)
	}
}

// quotaKeys are the keys of users and client ids that are whole numbers; the others are numbers with fractions.
var wholeQuotaKeys = map[string]bool{quota.Produce.Key(): true, quota.Fetch.Key(): true}

// quotaValue reads a value as it is stored.
func quotaValue(key, text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) {
		return 0, fmt.Errorf("value %q of %s is not a number", text, key)
	}
	return v, nil
}

// applyQuotas makes the settings of an entity hold. Keys that are no quotas (credentials of users) are not looked at.
func (f *configFollower) applyQuotas(kind, name string, settings map[string]string) error {
	if kind == coord.IPConfigs {
		return f.applyIP(name, settings)
	}
	entity, err := userOrClientEntity(kind, name)
	if err != nil {
		return err
	}
	rates := map[quota.Kind]float64{}
	var faults []error
	for key, text := range settings {
		if k, ok := quota.KindOfKey(key); ok {
			v, err := quotaValue(key, text)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			rates[k] = v
		}
	}
	f.quotas.SetEntity(entity, rates)
	return errors.Join(faults...)
}

func (f *configFollower) applyIP(name string, settings map[string]string) error {
	ip, err := entityPart(name)
	if err != nil {
		return err
	}
	text, ok := settings[quota.ConnectionRateKey]
	if !ok {
		f.connections.SetIP(ip, 0, false)
		return nil
	}
	v, err := quotaValue(quota.ConnectionRateKey, text)
	f.connections.SetIP(ip, v, err == nil)
	return err
}

// listReads bounds how many lists of client ids are asked for at once.
const listReads = 32

// entityName names a config entity as its path below /config does.
type entityName struct{ kind, name string }

func (e entityName) path() string { return coord.ConfigEntityPath(e.kind, e.name) }

// listQuotaEntities lists the nodes of client ids, users, users with client ids, and addresses.
func listQuotaEntities(ctx context.Context, store coord.Store) ([]entityName, error) {
	var out []entityName
	var users []string
	for _, kind := range []string{coord.ClientConfigs, coord.UserConfigs, coord.IPConfigs} {
		list, err := store.Children(ctx, coord.ConfigTypePath(kind))
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			return nil, fmt.Errorf("list %s configs: %w", kind, err)
		}
		for _, name := range list {
			out = append(out, entityName{kind, name})
		}
		if kind == coord.UserConfigs {
			users = list
		}
	}
	clients := make([][]string, len(users))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listReads)
	for i, user := range users {
		group.Go(func() error {
			list, err := store.Children(ctx, coord.ConfigEntityPath(coord.UserConfigs, user)+"/"+coord.ClientConfigs)
			if err != nil && !errors.Is(err, coord.ErrNoNode) {
				return fmt.Errorf("list client ids of user %s: %w", user, err)
			}
			clients[i] = list
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, user := range users {
		for _, client := range clients[i] {
			out = append(out, entityName{coord.UserConfigs, user + "/" + coord.ClientConfigs + "/" + client})
		}
	}
	return out, nil
}
