#!/usr/bin/env python3
"""What deploy.rs does to AWS: creates the stack as `sam deploy` would, sends messages, reads dead letters and logs.

usage: stack.py deploy TEMPLATE BUILT     name, parameters and secrets as JSON on standard input; prints outputs and ids
       stack.py hurry QUEUE_URL           failed messages come again at once, and are given up after the second time
       stack.py send QUEUE_URL            messages as a JSON array on standard input: bodies, or [group, body]
       stack.py receive QUEUE_URL COUNT   waits for COUNT messages; prints their bodies
       stack.py mapped FUNCTION           prints the ARNs of the queues whose messages this function gets
       stack.py logs GROUP…               prints every line in these log groups
       stack.py revoke ROLE POLICY        takes this inline policy from a role
       stack.py delete                    deletes the stack; prints what is left of it

Where AWS is, and who calls, is said by AWS_ENDPOINT_URL and the other variables of the AWS SDKs.
"""

import io
import json
import os
import sys
import time
import zipfile

import botocore.session
from samtranslator.yaml_helper import yaml_parse

STACK = "onetap"
PATIENCE = 60
session = botocore.session.get_session()


def client(service):
    return session.create_client(service)


def within(patience, what):
    """Counts the tries until the time is up."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        yield
        time.sleep(0.1)
    sys.exit(f"{what}: not within {patience} s")


def zipped(bootstrap):
    """What scripts/build has zipped, or the program that is there, zipped now."""
    if os.path.exists(f"{bootstrap}.zip"):
        with open(f"{bootstrap}.zip", "rb") as code:
            return code.read()
    entry, code = zipfile.ZipInfo("bootstrap"), io.BytesIO()
    entry.create_system, entry.external_attr = 3, 0o755 << 16
    with open(bootstrap, "rb") as program, zipfile.ZipFile(code, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(entry, program.read(), compresslevel=1)
    return code.getvalue()


def packaged(path, built, name):
    """The template with each function's code in a bucket: what `sam package` makes of it."""
    with open(path) as file:
        template = yaml_parse(file)
    s3, bucket = client("s3"), f"{name}-code"
    s3.create_bucket(Bucket=bucket)
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            binary = resource["Metadata"]["BuildProperties"]["Binary"]
            s3.put_object(Bucket=bucket, Key=binary, Body=zipped(f"{built}/{binary}/bootstrap"))
            resource["Properties"]["CodeUri"] = f"s3://{bucket}/{binary}"
    template.get("Globals", {}).get("Function", {}).pop("CodeUri", None)
    s3.put_object(Bucket=bucket, Key="template", Body=json.dumps(template).encode())
    return f"{os.environ['AWS_ENDPOINT_URL']}/{bucket}/template"


def deploy(path, built):
    asked = json.load(sys.stdin)
    name = asked["name"]
    secret = {"Name": asked["parameters"]["SecretName"], "SecretString": json.dumps(asked["secret"])}
    client("secretsmanager").create_secret(**secret)
    cloudformation = client("cloudformation")
    cloudformation.create_stack(
        StackName=name,
        TemplateURL=packaged(path, built, name),
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in asked["parameters"].items()],
    )
    for _ in within(PATIENCE, "the stack"):
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if not stack["StackStatus"].endswith("_IN_PROGRESS"):
            break
    if stack["StackStatus"] != "CREATE_COMPLETE":
        events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
        sys.exit("\n".join(f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason')}" for event in failed))
    # ministack keeps the mapping's number as the text that a parameter is, and then cannot compare it.
    functions = client("lambda")
    for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
        functions.update_event_source_mapping(UUID=mapping["UUID"], ScalingConfig=mapping["ScalingConfig"])
    resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
    return {
        "outputs": {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]},
        "resources": {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources},
    }


def hurry(queue):
    sqs = client("sqs")
    policy = redrive(queue)["policy"] | {"maxReceiveCount": 2}
    sqs.set_queue_attributes(
        QueueUrl=queue, Attributes={"VisibilityTimeout": "1", "RedrivePolicy": json.dumps(policy)}
    )


def redrive(queue):
    attributes = client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    return {"visibility": int(attributes["VisibilityTimeout"]), "policy": json.loads(attributes["RedrivePolicy"])}


def send(queue):
    entries = []
    for n, message in enumerate(json.load(sys.stdin)):
        group, body = (None, message) if isinstance(message, str) else message
        entries.append({"Id": str(n), "MessageBody": body} | ({"MessageGroupId": group} if group else {}))
    answer = client("sqs").send_message_batch(QueueUrl=queue, Entries=entries)
    if answer.get("Failed"):
        sys.exit(f"not sent: {answer['Failed']}")


def receive(queue, count):
    sqs, bodies = client("sqs"), []
    for _ in within(PATIENCE, f"{count} messages"):
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1, VisibilityTimeout=600)
        bodies += [message["Body"] for message in answer.get("Messages", [])]
        if len(bodies) >= int(count):
            return bodies


def mapped(function):
    mappings = client("lambda").list_event_source_mappings(FunctionName=function)["EventSourceMappings"]
    return [mapping["EventSourceArn"] for mapping in mappings]


def logs(*groups):
    cloudwatch, lines = client("logs"), []
    for group in groups:
        for page in cloudwatch.get_paginator("filter_log_events").paginate(logGroupName=group):
            lines += [event["message"] for event in page["events"]]
    return lines


def revoke(role, policy):
    client("iam").delete_role_policy(RoleName=role, PolicyName=policy)


def delete():
    cloudformation = client("cloudformation")
    stack = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["StackId"]
    cloudformation.delete_stack(StackName=STACK)
    for _ in within(PATIENCE, "the deletion"):
        status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
        if not status.endswith("_IN_PROGRESS"):
            break
    return {
        "status": status,
        "functions": [each["FunctionName"] for each in client("lambda").list_functions()["Functions"]],
        "queues": client("sqs").list_queues().get("QueueUrls", []),
        "apis": [each["ApiId"] for each in client("apigatewayv2").get_apis()["Items"]],
        "roles": [each["RoleName"] for each in client("iam").list_roles()["Roles"] if STACK in each["RoleName"]],
        "tables": client("dynamodb").list_tables()["TableNames"],
    }


if __name__ == "__main__":
    commands = {each.__name__: each for each in (deploy, hurry, redrive, send, receive, mapped, logs, revoke, delete)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:]), ensure_ascii=False))
