#!/bin/sh
# Deploy `work` and `start`, the topic between them, and the schedule. SHOAL is where shoal is.
#
#   PROJECT=... REGION=europe-west1 SEEDS=... SITES=... FRONTIER=rediss://... STORE=postgresql://... ./deploy.sh
set -eu
cd "$(dirname "$0")"
MOST=${MOST:-20}
WORKER=shoal-work@$PROJECT.iam.gserviceaccount.com
STARTER=shoal-start@$PROJECT.iam.gserviceaccount.com
CALLER=shoal-call@$PROJECT.iam.gserviceaccount.com
TOPIC=projects/$PROJECT/topics/shoal
JOB=projects/$PROJECT/locations/$REGION/jobs/shoal-start

python3 -m pip wheel --quiet --no-deps --wheel-dir . "${SHOAL:-../..}"
printf '%s: %s\n' SEEDS "'$SEEDS'" SITES "'$SITES'" FRONTIER "'$FRONTIER'" STORE "'$STORE'" \
  MOST "'$MOST'" TOPIC "'$TOPIC'" SCHEDULE "'$JOB'" > env.yaml

# Who may do what: `work` nothing, `start` send messages and end its schedule, the caller call both.
for account in shoal-work shoal-start shoal-call; do
  gcloud iam service-accounts create "$account" --project "$PROJECT"
done
gcloud pubsub topics create "$TOPIC"
gcloud pubsub topics create "$TOPIC-dead"
gcloud pubsub topics add-iam-policy-binding "$TOPIC" \
  --member "serviceAccount:$STARTER" --role roles/pubsub.publisher
gcloud iam roles create shoalSchedule --project "$PROJECT" \
  --permissions cloudscheduler.jobs.pause,cloudscheduler.jobs.get
gcloud projects add-iam-policy-binding "$PROJECT" --condition None \
  --member "serviceAccount:$STARTER" --role "projects/$PROJECT/roles/shoalSchedule"

deploy() {
  gcloud functions deploy "$1" --gen2 --project "$PROJECT" --region "$REGION" --runtime python313 \
    --source . --entry-point "$2" --trigger-http --no-allow-unauthenticated --env-vars-file env.yaml \
    --service-account "$3" --timeout 60s --concurrency 1 --cpu 1 --memory 1Gi --max-instances "$4"
  gcloud run services add-iam-policy-binding "$1" --project "$PROJECT" --region "$REGION" \
    --member "serviceAccount:$CALLER" --role roles/run.invoker
}
deploy shoal-work work "$WORKER" "$MOST"
deploy shoal-start start "$STARTER" 1

url() {
  gcloud run services describe "$1" --project "$PROJECT" --region "$REGION" --format 'value(status.url)'
}
# Messages are repeated when a slice is killed, and put aside after five times. Pub/Sub does that in its own name.
NUMBER=$(gcloud projects describe "$PROJECT" --format 'value(projectNumber)')
PUBSUB=serviceAccount:service-$NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com
gcloud pubsub topics add-iam-policy-binding "$TOPIC-dead" --member "$PUBSUB" --role roles/pubsub.publisher
gcloud pubsub subscriptions create shoal --project "$PROJECT" --topic "$TOPIC" --ack-deadline 120 \
  --push-endpoint "$(url shoal-work)" --push-auth-service-account "$CALLER" \
  --dead-letter-topic "$TOPIC-dead" --max-delivery-attempts 5 --min-retry-delay 10s --max-retry-delay 60s
gcloud pubsub subscriptions add-iam-policy-binding shoal --project "$PROJECT" \
  --member "$PUBSUB" --role roles/pubsub.subscriber
gcloud pubsub subscriptions create shoal-dead --project "$PROJECT" --topic "$TOPIC-dead"
gcloud scheduler jobs create http shoal-start --project "$PROJECT" --location "$REGION" --schedule '* * * * *' \
  --uri "$(url shoal-start)" --oidc-service-account-email "$CALLER" --attempt-deadline 60s
