"""A minimal Lambda function with Powertools' idempotency on DynamoDB; `awslambdaric` runs it."""

import os

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, idempotent

persistence = DynamoDBPersistenceLayer(table_name=os.environ["POWERTOOLS_TABLE"])


@idempotent(persistence_store=persistence)
def handler(event, context):
    return {"order": event["id"], "charged": 120}
