package driver

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/controller"
)

// UpdateFeatures asks the active controller to change finalized features. done is called exactly once, on any goroutine, with
// the new version of /feature, -1 where nothing was written; it must not block. NOT_CONTROLLER when this broker is not
// it, or ceases to be it.
func (d *Driver) UpdateFeatures(_ context.Context, req *kmsg.UpdateFeaturesRequest, done func(resp *kmsg.UpdateFeaturesResponse, version int32)) {
	updates := make([]controller.FeatureUpdate, len(req.FeatureUpdates))
	for i, u := range req.FeatureUpdates {
		kind := controller.FeatureUpdateType(u.UpgradeType)
		if req.Version == 0 {
			kind = controller.UpgradeFeature
			if u.AllowDowngrade {
				kind = controller.SafeDowngradeFeature
			}
		}
		updates[i] = controller.FeatureUpdate{Feature: u.Feature, Level: u.MaxVersionLevel, Type: kind}
	}
	d.request(func(token controller.ReplyToken) controller.Event {
		return controller.UpdateFeatures{Reply: token, Updates: updates, ValidateOnly: req.Version >= 1 && req.ValidateOnly}
	}, func(v controller.ReplyValue) {
		answer := v.(controller.UpdateFeaturesResult)
		resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
		resp.ErrorCode, resp.ErrorMessage = int16(answer.Err), message(answer.Message)
		for _, f := range answer.Features {
			r := kmsg.NewUpdateFeaturesResponseResult()
			r.Feature, r.ErrorCode, r.ErrorMessage = f.Feature, int16(f.Err), message(f.Message)
			resp.Results = append(resp.Results, r)
		}
		done(resp, answer.Version)
	})
}

// message is an error message of a response; nil for none.
func message(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
