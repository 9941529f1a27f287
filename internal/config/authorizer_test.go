package config

import (
	"slices"
	"testing"
)

func TestSuperUsersAreSeparatedBySemicolons(t *testing.T) {
	b, warnings, err := FromProperties(map[string]string{"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
		"super.users": "User:CN=a,O=b; User:c;", "allow.everyone.if.no.acl.found": "TRUE"})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	a := b.Authorizer
	if !a.Enabled || !a.AllowEveryoneIfNoACL || !slices.Equal(a.SuperUsers, []string{"User:CN=a,O=b", "User:c"}) {
		t.Errorf("authorizer is %+v", a)
	}
}

func TestSuperUsersWithoutAnAuthorizerHaveNoEffectAndAWarning(t *testing.T) {
	b, warnings, err := FromProperties(map[string]string{"super.users": "User:a"})
	if err != nil || b.Authorizer.Enabled || len(warnings) != 1 {
		t.Errorf("%+v, warnings %v, err %v", b.Authorizer, warnings, err)
	}
}

func TestTheAuthorizersKeysAreTakenFromTheEnvironment(t *testing.T) {
	b, warnings, err := Load("", nil, []string{"KAFKA_AUTHORIZER_CLASS_NAME=kafka.security.authorizer.AclAuthorizer", "KAFKA_SUPER_USERS=User:a",
		"KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND=true"})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if a := b.Authorizer; !a.Enabled || !a.AllowEveryoneIfNoACL || !slices.Equal(a.SuperUsers, []string{"User:a"}) {
		t.Errorf("authorizer is %+v", a)
	}
}
